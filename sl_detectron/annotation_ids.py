"""Annotation ids that travel with the data, so that the losses can say what they saw of each."""

import hashlib
from pathlib import PurePath
from typing import Any

import torch
from detectron2.data import DatasetMapper


def add_annotation_ids(dicts: list[dict[str, Any]], dataset_name: str) -> None:
    """Give every annotation without an ``id`` one, in place.

    It is a hash of the data set's name, image id, file name with two folders, and position in
    the image: the same in every run and, whatever the data's root, on every machine.
    """
    for record in dicts:
        file = "/".join(PurePath(record["file_name"]).parts[-3:])
        image = f"{dataset_name}/{record['image_id']}/{file}"
        for position, annotation in enumerate(record.get("annotations", ())):
            digest = hashlib.blake2b(f"{image}/{position}".encode(), digest_size=8).digest()
            annotation.setdefault("id", int.from_bytes(digest, "little") >> 1)


class IdDatasetMapper(DatasetMapper):
    """detectron2's DatasetMapper that also gives the field ``gt_ids``, if annotations have ids.

    detectron2 hands every ``gt_*`` field on to the proposals that match the annotation.
    """

    def __call__(self, dataset_dict: dict[str, Any]) -> dict[str, Any]:
        """Map one image; ``gt_ids`` are the annotations' ids."""
        annotations = dataset_dict.get("annotations", ())
        if not self.is_train or not all("id" in annotation for annotation in annotations):
            return super().__call__(dataset_dict)  # type: ignore[no-any-return]
        # Positions in the place of classes tell afterwards which annotations were kept.
        coded = [{**a, "category_id": position} for position, a in enumerate(annotations)]
        mapped: dict[str, Any] = super().__call__({**dataset_dict, "annotations": coded})
        kept = mapped["instances"].gt_classes
        classes = torch.tensor([a["category_id"] for a in annotations], dtype=torch.int64)
        ids = torch.tensor([a["id"] for a in annotations], dtype=torch.int64)
        mapped["instances"].gt_classes = classes[kept]
        mapped["instances"].gt_ids = ids[kept]
        return mapped

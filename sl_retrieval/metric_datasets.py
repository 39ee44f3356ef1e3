"""Data sets of metric learning, in which the classes of the test set are not those of training."""

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from fvcore.common.config import CfgNode

from sl_retrieval import catalog
from sl_retrieval.build import register_datasets
from sl_retrieval.builders import EXTENSIONS, from_folders, from_list_file
from sl_retrieval.data import RetrievalData

PARTS = ("train", "test")
_HALVED = {"cub200": "CUB_200_2011/images", "cars196": "cars196"}
_LISTED = ("inshop", "sop")


def from_two_levels(name: str, root: Path, seen: Path | None = None) -> RetrievalData:
    """A data set from folders <group>/<class>/<images>, as Omniglot's <alphabet>/<character>.

    A class is called <group>/<class>.

    Args:
        name: of the data set.
        root: the folder of the groups.
        seen: groups that this folder has too are left out.
    """
    for folder in (root, *([] if seen is None else [seen])):
        if not folder.is_dir():
            raise ValueError(
                f"data set {name!r}: no folder {folder}, expected one with folders "
                "<group>/<class>/<images>"
            )
    left_out = set() if seen is None else {path.name for path in seen.iterdir()}
    files = [
        file
        for file in sorted(root.glob("*/*/*"))
        if file.suffix.lower() in EXTENSIONS
        and not file.name.startswith(".")
        and file.relative_to(root).parts[0] not in left_out
    ]
    if not files:
        others = "" if seen is None else f" in groups that {seen} does not have"
        raise ValueError(
            f"data set {name!r}: no {', '.join(EXTENSIONS)} two folders below {root}{others}, "
            "expected <group>/<class>/<images>"
        )
    ids = [file.relative_to(root).as_posix() for file in files]
    label_names, labels = np.unique([i.rpartition("/")[0] for i in ids], return_inverse=True)
    return RetrievalData(
        name=name,
        images=tuple(str(file) for file in files),
        labels=labels.astype(np.int64),
        label_names=tuple(label_names.tolist()),
        ids=tuple(ids),
    )


def from_halves(name: str, root: Path, part: str) -> RetrievalData:
    """Half of the classes of a folder with one sub-folder for each class.

    Args:
        name: of the data set.
        root: of at least two sub-folders.
        part: ``train``, the first half by name, rounded down; or ``test``, the others.
    """
    data = from_folders(name, root)
    half = len(data.label_names) // 2
    if half == 0:
        raise ValueError(f"data set {name!r}: one class in {root}, expected at least two")
    is_first = data.labels < half
    if part == "train":
        kept = data.without(np.flatnonzero(~is_first))
        return replace(kept, label_names=data.label_names[:half])
    kept = data.without(np.flatnonzero(is_first))
    return replace(kept, labels=kept.labels - half, label_names=data.label_names[half:])


def register_metric_datasets(cfg: CfgNode) -> None:
    """Register those of ``build.register_datasets``, of DATASETS.TWO_LEVELS, and the ones below.

    - omniglot_small1, omniglot_small2_unseen: <root>/omniglot_small/images_background_small1, and
      of ..._small2 the alphabets that small1 does not have.
    - cub200_train, _test, cars196_train, _test: the halves of <root>/CUB_200_2011/images and of
      <root>/cars196, a folder for each class.
    - inshop_train, _test, sop_train, _test: lists <root>/<name>/train.txt and test.txt, lines of
      image and label; the images below <root>/<name>/images.

    <root> is the environment variable RETRIEVAL_DATASETS, or else the folder ``datasets``. Files
    are looked for when a data set is built.
    """
    for name in _builtin():
        if name not in catalog.names():
            catalog.register(name, functools.partial(_build, name))
    register_datasets(cfg)
    for entry in cfg.DATASETS.TWO_LEVELS:
        is_list = isinstance(entry, list | tuple) and all(isinstance(part, str) for part in entry)
        if not is_list or len(entry) not in (2, 3):
            raise ValueError(
                f"DATASETS.TWO_LEVELS has the entry {entry!r}, expected [name, folder] and perhaps "
                "a folder whose groups are left out"
            )
        catalog.register(
            entry[0], functools.partial(from_two_levels, entry[0], *map(Path, entry[1:]))
        )


def _build(name: str) -> RetrievalData:
    try:
        return _builtin()[name]()
    except ValueError as error:
        raise ValueError(
            f"{error}. The root is the environment variable RETRIEVAL_DATASETS, or else ./datasets"
        ) from error


def _builtin() -> dict[str, Callable[[], RetrievalData]]:
    """Builders by name, with the root as it is now."""
    root = Path(os.environ.get("RETRIEVAL_DATASETS", "datasets"))
    small1, small2 = (root / "omniglot_small" / f"images_background_small{n}" for n in (1, 2))
    found: dict[str, Callable[[], RetrievalData]] = {
        "omniglot_small1": functools.partial(from_two_levels, "omniglot_small1", small1),
        "omniglot_small2_unseen": functools.partial(
            from_two_levels, "omniglot_small2_unseen", small2, small1
        ),
    }
    for part in PARTS:
        for base, folder in _HALVED.items():
            name = f"{base}_{part}"
            found[name] = functools.partial(from_halves, name, root / folder, part)
        for base in _LISTED:
            name, folder_of_set = f"{base}_{part}", root / base
            found[name] = functools.partial(
                from_list_file, name, folder_of_set / f"{part}.txt", folder_of_set / "images"
            )
    return found

"""Retrieval data sets from files: a list, a folder for each landmark, or a cirtorch pickle."""

import functools
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sl_retrieval import catalog
from sl_retrieval.cirtorch_database import WHITEN, read_database
from sl_retrieval.data import RetrievalData
from sl_retrieval.list_files import read_list
from sl_retrieval.procedural_landmarks import NUM_LANDMARKS, load_procedural

EXTENSIONS = (".jpg", ".jpeg", ".png")
MAX_MISSING = 0.01
_SHOWN = 10  # names in a message
logger = logging.getLogger(__name__)


def from_list_file(
    name: str,
    list_file: Path,
    image_root: Path,
    split: str | None = None,
    max_missing: float = MAX_MISSING,
) -> RetrievalData:
    """A data set from a text file that lists images and their labels.

    The forms of the file are those of ``list_files.read_list``. An image listed twice is kept
    once, with its first label, and reported.

    Args:
        name: of the data set.
        list_file: the list.
        image_root: folder that the listed names are relative to. A name without extension stands
            for its .jpg, .jpeg or .png.
        split: keep the rows whose column ``split`` has this value; None keeps all rows.
        max_missing: part of the images that may be missing; they are reported and left out.
    """
    label_of: dict[str, str] = {}
    repeated = []
    for image, label in read_list(list_file, split):
        if image in label_of:
            repeated.append(image if label == label_of[image] else f"{image} (another label)")
        else:
            label_of[image] = label
    if repeated:
        logger.warning("%s: %s listed more than once", list_file, _listed(repeated, "images"))
    absolute = [image for image in label_of if Path(image).is_absolute()]
    if absolute:
        raise ValueError(
            f"{list_file}: {absolute[0]!r} is an absolute path, expected names relative to the "
            f"image folder {image_root}"
        )
    _require_folder(name, image_root, "of images")
    label_names, labels = np.unique(list(label_of.values()), return_inverse=True)
    found = [find_image(image_root, image) for image in label_of]
    data = RetrievalData(
        name=name,
        images=tuple(str(file or image_root / i) for file, i in zip(found, label_of, strict=True)),
        labels=labels.astype(np.int64),
        label_names=tuple(label_names.tolist()),
        ids=tuple(label_of),
    )
    return _without_missing(data, found, list_file, image_root, max_missing)


def from_folders(name: str, root: Path) -> RetrievalData:
    """A data set from a folder that has one sub-folder for each landmark, named by it.

    Images (.jpg, .jpeg, .png) may lie deeper in a sub-folder; hidden files are left out.
    """
    _require_folder(name, root, "with one sub-folder of images for each landmark")
    files = [
        file
        for folder in sorted(root.iterdir())
        if folder.is_dir()
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in EXTENSIONS and not file.name.startswith(".")
    ]
    if not files:
        raise ValueError(
            f"data set {name!r}: no {', '.join(EXTENSIONS)} below the sub-folders of {root}, "
            "expected one sub-folder of images for each landmark"
        )
    ids = [file.relative_to(root).as_posix() for file in files]
    label_names, labels = np.unique([i.split("/")[0] for i in ids], return_inverse=True)
    return RetrievalData(
        name=name,
        images=tuple(str(file) for file in files),
        labels=labels.astype(np.int64),
        label_names=tuple(label_names.tolist()),
        ids=tuple(ids),
    )


def from_cirtorch_pickle(
    name: str,
    pickle_file: Path,
    image_root: Path,
    split: str,
    max_missing: float = MAX_MISSING,
) -> RetrievalData:
    """A data set from cirtorch's training database, with its fixed (query, positive) pairs.

    The forms of the file are those of ``cirtorch_database.read_database``.

    Args:
        name: of the data set.
        pickle_file: the database.
        image_root: folder of the images. Image ...abcdef is ef/cd/ab/...abcdef below it, without
            extension, as cirtorch stores them, or else lies in it, with or without extension.
        split: "train" or "val"; "whiten" for a file without splits.
        max_missing: part of the images that may be missing; they are reported and left out, and
            so are their pairs.
    """
    database = read_database(pickle_file, split)
    _require_folder(name, image_root, "of images")
    cids = database.cids
    found = [
        find_image(image_root, _cirtorch_path(cid)) or find_image(image_root, cid) for cid in cids
    ]
    data = RetrievalData(
        name=name,
        images=tuple(
            str(file or image_root / _cirtorch_path(cid))
            for file, cid in zip(found, cids, strict=True)
        ),
        labels=database.labels,
        label_names=database.label_names,
        pairs=database.pairs,
        ids=cids,
    )
    return _without_missing(data, found, pickle_file, image_root, max_missing)


def find_image(root: Path, name: str) -> Path | None:
    """The file of a listed name, which may lack its .jpg, .jpeg or .png; None if there is none."""
    literal = root / name
    candidates = (literal, *(literal.with_name(literal.name + end) for end in EXTENSIONS))
    return next((file for file in candidates if file.is_file()), None)


def register_builtin() -> None:
    """Register the data sets below; a second call changes nothing.

    - procedural_train, _val, _test, _start (for warm-ups): generated, need no files.
    - landmarks_full_train, _val, landmarks_clean_train, _val: lists <root>/<name>/train.txt and
      val.txt; the images of both below <root>/landmarks_full/images, since the clean set is a part
      of the full one.
    - retrieval-SfM-120k_train, _val, retrieval-SfM-30k_train, _val: cirtorch's own layout,
      <root>/train/<name>/<name>.pkl and <root>/train/<name>/ims; and retrieval-SfM-120k_whiten,
      retrieval-SfM-30k_whiten, the pairs of <root>/train/<name>/<name>-whiten.pkl.

    <root> is the environment variable RETRIEVAL_DATASETS, or else the folder ``datasets``. Files
    are looked for when a data set is built.
    """
    if "procedural_train" in catalog.names():
        return
    for split in NUM_LANDMARKS:
        catalog.register(f"procedural_{split}", functools.partial(load_procedural, split))
    for split in ("train", "val"):
        for name in ("landmarks_full", "landmarks_clean"):
            catalog.register(f"{name}_{split}", functools.partial(_landmarks, name, split))
    for split in ("train", "val", WHITEN):
        for name in ("retrieval-SfM-120k", "retrieval-SfM-30k"):
            catalog.register(f"{name}_{split}", functools.partial(_sfm, name, split))


def _landmarks(name: str, split: str) -> RetrievalData:
    root = _datasets_root()
    list_file, images = root / name / f"{split}.txt", root / "landmarks_full" / "images"
    _require_layout(
        f"{name}_{split}", (list_file, "lines of image and label"), (images, "the images")
    )
    return from_list_file(f"{name}_{split}", list_file, images)


def _sfm(name: str, split: str) -> RetrievalData:
    folder = _datasets_root() / "train" / name
    pickle_file = folder / (f"{name}-whiten.pkl" if split == WHITEN else f"{name}.pkl")
    images = folder / "ims"
    _require_layout(
        f"{name}_{split}",
        (pickle_file, "cirtorch's database"),
        (images, "the images, ab/cd/ef/..."),
    )
    return from_cirtorch_pickle(f"{name}_{split}", pickle_file, images, split)


def _datasets_root() -> Path:
    return Path(os.environ.get("RETRIEVAL_DATASETS", "datasets"))


def _require_layout(name: str, *parts: tuple[Path, str]) -> None:
    missing = [str(path) for path, _ in parts if not path.exists()]
    if missing:
        layout = "; ".join(f"{path} ({what})" for path, what in parts)
        raise ValueError(
            f"data set {name!r}: no {' and no '.join(missing)}, expected {layout}. The root is the "
            "environment variable RETRIEVAL_DATASETS, or else ./datasets"
        )


def _require_folder(name: str, folder: Path, expected: str) -> None:
    if not folder.is_dir():
        raise ValueError(f"data set {name!r}: no folder {folder}, expected one {expected}")


def _without_missing(
    data: RetrievalData,
    found: Sequence[Path | None],
    source: Path,
    image_root: Path,
    max_missing: float,
) -> RetrievalData:
    missing = [position for position, file in enumerate(found) if file is None]
    if not missing:
        return data
    message = (
        f"data set {data.name!r}: of {len(found)} images in {source}, "
        f"{_listed([data.ids[i] for i in missing], 'are')} missing in {image_root}"
    )
    if len(missing) > max_missing * len(found):
        raise ValueError(f"{message}, expected at most {max_missing:.1%}")
    logger.warning("%s; they are left out", message)
    return data.without(missing)


def _listed(names: Sequence[str], what: str) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return f"{len(names)} {what} ({', '.join(names[:_SHOWN])}{more})"


def _cirtorch_path(cid: str) -> str:
    return str(Path(cid[-2:], cid[-4:-2], cid[-6:-4], cid))

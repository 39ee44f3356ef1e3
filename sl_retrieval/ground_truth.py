"""Which database images are relevant to which query: cirtorch's and revisitop's files.

A file holds {"imlist": [name, ...], "qimlist": [name, ...], "gnd": [one dict per query]}, as a
pickle of plain values or as JSON. The dict of a query holds lists of positions in imlist:

- revisited form (roxford5k, rparis6k): ``easy``, ``hard``, ``junk``;
- classic form (oxford5k, paris6k, a user's own): ``ok``, ``junk``;

and, optionally, ``bbx``: [x1, y1, x2, y2], the part of the query image that is the query. Junk
counts neither as right nor as wrong. A query that is itself in imlist counts as what the lists
say, as in cirtorch: under ``junk`` it is left out, under ``ok`` it is a positive to be found.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sl_retrieval.safe_pickle import load_plain_pickle

Indices = NDArray[np.int64]
Relevance = Mapping[str, Indices]
Box = tuple[float, float, float, float]

REVISITED = ("easy", "hard", "junk")
CLASSIC = ("ok", "junk")

_IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """A retrieval test set.

    Attributes:
        name: such as roxford5k.
        images: names of the N database images.
        queries: names of the Q query images.
        boxes: per query, (x1, y1, x2, y2) in pixels to crop to, or None for the whole image.
        relevance: per query, positions in ``images`` under the keys ``easy``, ``hard`` and
            ``junk``, or under ``ok`` and ``junk``; the same keys for all queries, and no image
            twice in one query.
    """

    name: str
    images: tuple[str, ...]
    queries: tuple[str, ...]
    boxes: tuple[Box | None, ...]
    relevance: tuple[Relevance, ...]


def find_ground_truth(data_root: Path, dataset: str) -> Path:
    """The file data_root/dataset/gnd_dataset.pkl or .json, the pickle if both are there."""
    pickled = data_root / dataset / f"gnd_{dataset}.pkl"
    for file in (pickled, pickled.with_suffix(".json")):
        if file.is_file():
            return file
    raise ValueError(f"no ground truth of {dataset!r}: expected {pickled} or the same as .json")


def image_file(data_root: Path, dataset: str, name: str) -> Path:
    """The file data_root/dataset/jpg/name, with .jpg added if the name has no image suffix."""
    has_suffix = Path(name).suffix.lower() in _IMAGE_SUFFIXES
    return data_root / dataset / "jpg" / (name if has_suffix else f"{name}.jpg")


def load_ground_truth(file: Path) -> GroundTruth:
    """Read and check a ground truth file, .pkl or .json, of the form given above.

    Raises:
        ValueError: the file is neither, or its content is not of that form. The message names
            the file, and the query (counted from 0) and key where that applies.
    """
    content = _load(file)
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds a {type(content).__name__}, expected a dict")
    images, queries = (_names(content, key, file) for key in ("imlist", "qimlist"))
    entries = _list(content, "gnd", file)
    if len(entries) != len(queries):
        raise ValueError(f"{file}: gnd has {len(entries)} entries, qimlist has {len(queries)}")
    keys = REVISITED if any("easy" in e for e in entries if isinstance(e, dict)) else CLASSIC
    boxes, relevance = [], []
    for query, entry in enumerate(entries):
        where = f"{file}: query {query}"
        relevance.append(checked_relevance(entry, keys, len(images), where))
        boxes.append(_box(entry.get("bbx"), where))
    name = file.stem.removeprefix("gnd_")
    return GroundTruth(name, images, queries, tuple(boxes), tuple(relevance))


def checked_relevance(entry: Any, keys: tuple[str, ...], count: int, where: str) -> Relevance:
    """The lists ``keys`` of one query's entry as (n,) arrays, if they are what they should be.

    Args:
        entry: a mapping from each of ``keys`` to distinct integers in [0, count); other keys are
            not looked at.
        keys: ``REVISITED`` or ``CLASSIC``.
        count: number of database images.
        where: how an error message should begin.

    Raises:
        ValueError: a key is missing, a list is malformed or out of range, or an image is listed
            twice, in one list or in two.
    """
    if not isinstance(entry, Mapping) or any(key not in entry for key in keys):
        found = [*entry] if isinstance(entry, Mapping) else type(entry).__name__
        raise ValueError(f"{where} has {found}, expected the keys {', '.join(keys)}")
    lists = {key: _indices(entry[key], count, f"{where}, {key}") for key in keys}
    values, counts = np.unique(np.concatenate(list(lists.values())), return_counts=True)
    if (counts > 1).any():
        image = values[counts > 1][0]
        holders = [key for key, indices in lists.items() if image in indices]
        raise ValueError(f"{where} lists image {image} twice, in {' and '.join(holders)}")
    return lists


def _load(file: Path) -> Any:
    if file.suffix == ".pkl":
        return load_plain_pickle(file)
    if file.suffix != ".json":
        raise ValueError(f"{file}: expected a ground truth file that ends in .pkl or .json")
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error


def _list(content: dict[str, Any], key: str, file: Path) -> list[Any]:
    if not isinstance(content.get(key), list | tuple):
        found = type(content[key]).__name__ if key in content else "missing"
        raise ValueError(f"{file}: {key} is {found}, expected a list")
    return list(content[key])


def _names(content: dict[str, Any], key: str, file: Path) -> tuple[str, ...]:
    names = _list(content, key, file)
    for position, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise ValueError(f"{file}: {key}[{position}] is {name!r}, expected an image name")
    return tuple(names)


def _indices(values: Any, count: int, where: str) -> Indices:
    try:
        array = np.asarray(values)
    except ValueError:  # lists of unequal lengths
        array = np.empty((), object)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{where} is {str(values)[:60]}, expected a list of integers")
    if array.size and not (array.min() >= 0 and array.max() < count):
        outside = array[(array < 0) | (array >= count)][0]
        raise ValueError(f"{where} lists image {outside}, expected 0 to {count - 1}")
    indices = array.astype(np.int64)
    indices.setflags(write=False)
    return indices


def _box(values: Any, where: str) -> Box | None:
    if values is None:
        return None
    is_box = (
        isinstance(values, list | tuple)
        and len(values) == 4
        and all(isinstance(v, int | float) and math.isfinite(v) for v in values)
        and values[0] < values[2]
        and values[1] < values[3]
    )
    if not is_box:
        raise ValueError(
            f"{where}, bbx is {str(values)[:60]}, expected [x1, y1, x2, y2] with x1 < x2, y1 < y2"
        )
    x1, y1, x2, y2 = (float(v) for v in values)
    return x1, y1, x2, y2

"""Any registered detection data set with label noise, by name: ``<base>_<kind><percent>_s<seed>``.

For example ``voc_2007_trainval_sym40_s0``. The kinds:

- ``sym``: exactly round(rate x N) annotations, difficult ones counted, get another class, uniform
  over the others; background is never a target.
- ``symkeep``: the same, uniform over all classes, the own one included.
- ``asym``: along the data set's metadata ``confusion``, a map from class to class or classes.
- ``box``: centre and size of exactly round(rate x N) boxes jittered by up to ``rate`` of the size,
  uniformly, and clipped to the image.

Annotations are ordered by a hash of (seed, image id, index in the image) and the first are taken:
the same on every machine, and for one seed the 20 % set lies inside the 40 % set. Crowd regions
are left out. Every annotation keeps ``clean_category_id`` or ``clean_bbox``. Only the training
dicts change; evaluation, also of a noisy name, reads the original.
"""

import functools
import logging
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from detectron2.data import DatasetCatalog, MetadataCatalog
from detectron2.structures import BoxMode

from sl_core import noise

KINDS = ("sym", "symkeep", "asym", "box")
_NAME = re.compile(r"(?P<base>.+)_(?P<kind>symkeep|sym|asym|box)(?P<percent>\d+)_s(?P<seed>\d+)")
logger = logging.getLogger(__name__)


def noisy_name(base: str, kind: str, rate: float, seed: int) -> str:
    """The name of a noisy data set; the rate must be a whole number of percent."""
    percent = round(100 * rate)
    if kind not in KINDS:
        raise ValueError(f"kind of noise is {kind!r}, expected one of {', '.join(KINDS)}")
    if not 0 <= rate <= 1 or abs(percent - 100 * rate) > 1e-9:
        raise ValueError(f"rate is {rate}, expected 0 to 1 in whole percents")
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected at least 0")
    return f"{base}_{kind}{percent}_s{seed}"


def register_noisy(base: str, kind: str, rate: float, seed: int) -> str:
    """Register a noisy version of a registered data set and return its name.

    A second call with the same arguments changes nothing.
    """
    name = noisy_name(base, kind, rate, seed)
    known = DatasetCatalog.list()
    if base not in known:
        raise ValueError(f"{name}: {base!r} is not a registered data set")
    if name in known:
        return name
    DatasetCatalog.register(name, functools.partial(_load, name, base, kind, rate, seed))
    _copy_metadata(base, name)
    return name


def register_on_sight(names: Iterable[str]) -> None:
    """Register those of the names that follow the naming rule and are not registered yet."""
    for name in names:
        match = _NAME.fullmatch(name)
        if match and name not in DatasetCatalog.list():
            rate = int(match["percent"]) / 100
            if rate > 1:
                raise ValueError(f"data set {name!r}: {match['percent']} %, expected 0 to 100")
            register_noisy(match["base"], match["kind"], rate, int(match["seed"]))


def make_noisy(
    dicts: list[dict[str, Any]],
    kind: str,
    rate: float,
    seed: int,
    num_classes: int,
    confusion: dict[int, Any] | None = None,
) -> str:
    """Put noise into the annotations of detectron2 data set dicts, in place.

    Args:
        dicts: the data set.
        kind: sym | symkeep | asym | box.
        rate: in [0, 1].
        seed: at least 0.
        num_classes: number of classes K; category ids are 0 to K - 1.
        confusion: the class map of ``asym``.

    Returns:
        The digest of the noisy classes or boxes.
    """
    entries = [
        (str(record["image_id"]), position, annotation, record)
        for record in dicts
        for position, annotation in enumerate(record["annotations"])
        if not annotation.get("iscrowd", 0)
    ]
    ids = ([entry[0] for entry in entries], np.array([entry[1] for entry in entries], int))
    if kind == "box":
        return _jitter_boxes(entries, rate, seed, ids)
    labels = np.array([annotation["category_id"] for _, _, annotation, _ in entries], int)
    if kind == "asym":
        if confusion is None:
            raise ValueError("asym noise needs the data set's metadata `confusion`, a class map")
        noisy = noise.asymmetric(labels, confusion, rate, seed, ids)
    else:
        function = noise.symmetric if kind == "sym" else noise.symmetric_keep
        noisy = function(labels, num_classes, rate, seed, ids)
    for (_, _, annotation, _), label in zip(entries, noisy.tolist(), strict=True):
        annotation["clean_category_id"] = annotation["category_id"]
        annotation["category_id"] = label
    return noise.digest(noisy)


def _load(name: str, base: str, kind: str, rate: float, seed: int) -> list[dict[str, Any]]:
    dicts: list[dict[str, Any]] = [
        {**record, "annotations": [dict(a) for a in record.get("annotations", ())]}
        for record in DatasetCatalog.get(base)
    ]
    # Some data sets, such as COCO's, know their classes only when they are loaded.
    _copy_metadata(base, name)
    metadata = MetadataCatalog.get(name)
    confusion = metadata.get("confusion", None)
    digest = make_noisy(dicts, kind, rate, seed, len(metadata.thing_classes), confusion)
    metadata.noise_digest = digest
    changed = sum(is_wrong(a) for record in dicts for a in record["annotations"])
    total = sum(len(record["annotations"]) for record in dicts)
    logger.info("%s: %d of %d annotations are wrong, digest %s", name, changed, total, digest)
    return dicts


def clean_name(name: str) -> str:
    """The data set that a noisy one is made of, for evaluation; other names as they are."""
    base = MetadataCatalog.get(name).get("noise_base", None)
    return name if base is None else str(base)


def _copy_metadata(base: str, name: str) -> None:
    known, own = MetadataCatalog.get(base).as_dict(), MetadataCatalog.get(name)
    missing = {
        key: value for key, value in known.items() if key != "name" and not hasattr(own, key)
    }
    own.set(**missing)
    own.noise_base = base


def is_wrong(annotation: dict[str, Any]) -> bool:
    """Whether noise has changed an annotation."""
    wrong_class = annotation["category_id"] != annotation.get(
        "clean_category_id", annotation["category_id"]
    )
    return bool(wrong_class or ("clean_bbox" in annotation and _moved(annotation)))


def _moved(annotation: dict[str, Any]) -> bool:
    return not np.allclose(annotation["bbox"], annotation["clean_bbox"])


def _jitter_boxes(
    entries: list[tuple[str, int, dict[str, Any], dict[str, Any]]],
    rate: float,
    seed: int,
    ids: tuple[list[str], np.ndarray],
) -> str:
    """Move centre and size by up to ``rate`` times the size, independently and uniformly."""
    chosen = noise.selected(len(entries), rate, seed, ids)
    # Four draws from [-1, 1] for each annotation, by its id and the number of the draw.
    draws = np.stack(
        [
            noise.regression(
                np.zeros(len(entries)),
                -1.0,
                1.0,
                1.0,
                seed,
                (*ids, np.full(len(entries), number)),
            )
            for number in range(4)
        ],
        axis=1,
    )
    for _, _, annotation, _ in entries:
        annotation["clean_bbox"] = list(annotation["bbox"])
    for position in chosen:
        _, _, annotation, record = entries[position]
        mode = annotation["bbox_mode"]
        x0, y0, x1, y1 = BoxMode.convert(list(annotation["bbox"]), mode, BoxMode.XYXY_ABS)
        width, height = x1 - x0, y1 - y0
        dx, dy, dw, dh = rate * draws[position]
        x, y = (x0 + x1) / 2 + dx * width, (y0 + y1) / 2 + dy * height
        half_width, half_height = width * (1 + dw) / 2, height * (1 + dh) / 2
        limits = (record["width"], record["height"]) * 2
        box = (x - half_width, y - half_height, x + half_width, y + half_height)
        clipped = [float(np.clip(v, 0, limit)) for v, limit in zip(box, limits, strict=True)]
        annotation["bbox"] = list(BoxMode.convert(clipped, BoxMode.XYXY_ABS, mode))
    return noise.digest(np.array([entry[2]["bbox"] for entry in entries], float).reshape(-1))

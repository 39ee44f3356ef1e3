"""Data sets in Pascal VOC's folder layout, with any classes, tolerant of what real files hold."""

import functools
import logging
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detectron2.data import DatasetCatalog, MetadataCatalog
from detectron2.structures import BoxMode
from PIL import Image

logger = logging.getLogger(__name__)
ON_ERROR = ("skip", "stop")
MAX_REPORTED = 10
MAX_UNUSABLE = 0.5  # part of the images that may be unusable before it is an error


class AnnotationError(ValueError):
    """A damaged image or annotation; the message names the file."""


def register_voc(
    name: str, dirname: str, split: str, class_names: Sequence[str], on_error: str = "skip"
) -> None:
    """Register a folder with Annotations, ImageSets/Main and JPEGImages.

    It is evaluated by AP, AP50 and AP75 over its classes, from the same annotations.

    Args:
        name: name for DATASETS.TRAIN and TEST.
        dirname: the folder.
        split: file of ImageSets/Main without .txt.
        class_names: the classes, in the order of category ids.
        on_error: skip (leave out what is damaged, count and report it) | stop.
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error is {on_error!r}, expected one of {', '.join(ON_ERROR)}")
    if isinstance(class_names, str) or not all(isinstance(c, str) for c in class_names):
        raise ValueError(f"class_names is {class_names!r}, expected a list of names")
    load = functools.partial(load_voc, dirname, split, tuple(class_names), on_error)
    DatasetCatalog.register(name, load)
    metadata = MetadataCatalog.get(name)
    metadata.set(thing_classes=list(class_names), dirname=dirname, split=split)
    metadata.set(evaluator_type="coco")


def load_voc(
    dirname: str, split: str, class_names: Sequence[str], on_error: str = "skip"
) -> list[dict[str, Any]]:
    """All images of a split in detectron2's format.

    Raises:
        FileNotFoundError: no such folder or split.
        AnnotationError: something is damaged and ``on_error`` is stop, or more than half of the
            images cannot be used.
    """
    root = Path(dirname)
    list_file = root / "ImageSets" / "Main" / f"{split}.txt"
    if not list_file.is_file():
        known = sorted(file.stem for file in list_file.parent.glob("*.txt"))
        raise FileNotFoundError(f"{list_file} does not exist; splits there: {known or 'none'}")
    records, problems = [], []
    names = [line.split()[0] for line in list_file.read_text().splitlines() if line.strip()]
    for name in names:
        try:
            record, damaged = _load_image(root, name, class_names)
        except AnnotationError as error:
            problems.append(str(error))
            continue
        problems += damaged
        records.append(record)
    unusable = len(names) - len(records)
    if problems and (on_error == "stop" or unusable > MAX_UNUSABLE * len(names)):
        raise AnnotationError(_report(list_file, problems))
    if problems:
        logger.warning("%s", _report(list_file, problems))
    return records


def _report(list_file: Path, problems: list[str]) -> str:
    shown = "\n  ".join(problems[:MAX_REPORTED])
    more = len(problems) - MAX_REPORTED
    rest = f"\n  and {more} more" if more > 0 else ""
    return f"{list_file}: {len(problems)} damaged entries\n  {shown}{rest}"


def _load_image(
    root: Path, name: str, class_names: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """One image and the list of what is damaged in it; AnnotationError if it is unusable."""
    annotation_file = root / "Annotations" / f"{name}.xml"
    try:
        annotation = ET.parse(annotation_file).getroot()
    except (OSError, ET.ParseError) as error:
        raise AnnotationError(f"{annotation_file}: {error}") from error
    image_file = _image_file(root, name)
    annotations: list[dict[str, Any]] = []
    problems: list[str] = []
    width, height = _image_size(image_file)
    stated = tuple(annotation.findtext(f"size/{side}") for side in ("width", "height"))
    if None not in stated and stated != (str(width), str(height)):
        problems.append(f"{annotation_file}: size {stated}, but the image has {width} x {height}")
    for number, node in enumerate(annotation.iter("object")):
        try:
            annotations.append(_annotation(node, class_names, width, height))
        except (ValueError, AttributeError, TypeError) as error:
            problems.append(f"{annotation_file}: object {number}: {error}")
    record = {
        "file_name": str(image_file),
        "image_id": name,
        "height": height,
        "width": width,
        "annotations": annotations,
    }
    return record, problems


def _image_file(root: Path, name: str) -> Path:
    for suffix in (".jpg", ".jpeg", ".png", ".JPG"):
        file = root / "JPEGImages" / f"{name}{suffix}"
        if file.is_file():
            return file
    raise AnnotationError(f"{root / 'JPEGImages' / name}.jpg: no such image")


def _image_size(image_file: Path) -> tuple[int, int]:
    """Width and height as the image's header says; annotations may be missing or wrong there."""
    try:
        with Image.open(image_file) as image:
            return image.size
    except OSError as error:
        raise AnnotationError(f"{image_file}: {error}") from error


def _annotation(
    node: ET.Element, class_names: Sequence[str], width: int, height: int
) -> dict[str, Any]:
    label = node.findtext("name")
    if label not in class_names:
        raise ValueError(f"class {label!r} is not one of {', '.join(class_names)}")
    corners = [float(node.findtext(f"bndbox/{c}") or "") for c in ("xmin", "ymin", "xmax", "ymax")]
    # Pixels are counted from 1 and the last one is inside: (1, W) covers the image, as (0, W).
    x0, y0, x1, y1 = corners[0] - 1, corners[1] - 1, corners[2], corners[3]
    x0, x1 = max(x0, 0.0), min(x1, float(width))
    y0, y1 = max(y0, 0.0), min(y1, float(height))
    if not (x1 - x0 > 1 and y1 - y0 > 1):  # nan included
        raise ValueError(f"box {corners} has no area inside {width} x {height}")
    return {
        "bbox": [x0, y0, x1, y1],
        "bbox_mode": BoxMode.XYXY_ABS,
        "category_id": class_names.index(label),
        "difficult": int(node.findtext("difficult") or 0),
    }

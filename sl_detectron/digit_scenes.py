"""Digit scenes: a detection data set that needs no files, made of scikit-learn's digits.

1 to 4 digits of different size and brightness on a noisy canvas. Scene i of a split is a function
of (split, i) alone, and the splits (train, test, and val to choose settings on) are made of
different digits. Images are painted when they are read: ``digits://train/17.png`` opens like a file
in everything that uses detectron2's PathManager.
"""

import functools
import io
from typing import Any

import numpy as np
from detectron2.data import DatasetCatalog, MetadataCatalog
from detectron2.structures import BoxMode
from detectron2.utils.file_io import PathManager
from iopath.common.file_io import PathHandler
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

CANVAS = 96
SIZES = (24, 48)
MAX_DIGITS = 4
NUM_IMAGES = {"train": 800, "test": 200, "val": 200}
PREFIX = "digits://"


def scene_annotations(split: str, index: int) -> list[dict[str, Any]]:
    """The annotations of a scene: boxes that overlap little, classes 0 to 9."""
    _, labels = _digits(split)
    return [
        {
            "bbox": [float(x), float(y), float(x + size), float(y + size)],
            "bbox_mode": BoxMode.XYXY_ABS,
            "category_id": int(labels[digit]),
        }
        for digit, size, x, y in _layout(split, index)
    ]


def scene_image(split: str, index: int) -> NDArray[np.uint8]:
    """The image of a scene: (CANVAS, CANVAS, 3)."""
    generator = _generator(split, index, stream=1)
    canvas = generator.normal(60, 18, (CANVAS, CANVAS))
    images, _ = _digits(split)
    for digit, size, x, y in _layout(split, index):
        picture = Image.fromarray(images[digit]).resize((size, size), Image.Resampling.BILINEAR)
        ink = np.asarray(picture, dtype=np.float64) / 255 * generator.uniform(90, 180)
        canvas[y : y + size, x : x + size] += ink
    grey = canvas.clip(0, 255).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def load_digit_scenes(split: str) -> list[dict[str, Any]]:
    """All scenes of a split in detectron2's format."""
    return [
        {
            "file_name": f"{PREFIX}{split}/{index}.png",
            "image_id": index,
            "height": CANVAS,
            "width": CANVAS,
            "annotations": scene_annotations(split, index),
        }
        for index in range(NUM_IMAGES[split])
    ]


class DigitSceneHandler(PathHandler):
    """Opens ``digits://split/index.png`` as the PNG of that scene."""

    def _get_supported_prefixes(self) -> list[str]:
        return [PREFIX]

    def _open(self, path: str, mode: str = "r", buffering: int = -1, **_: Any) -> io.BytesIO:
        split, name = path[len(PREFIX) :].split("/")
        return io.BytesIO(_png(split, int(name.removesuffix(".png"))))


def register_digit_scenes() -> None:
    """Register ``digits_train``, ``_test`` and ``_val``; a second call changes nothing."""
    if "digits_train" in DatasetCatalog.list():
        return
    PathManager.register_handler(DigitSceneHandler())
    for split in NUM_IMAGES:
        name = f"digits_{split}"
        DatasetCatalog.register(name, functools.partial(load_digit_scenes, split))
        classes = [str(digit) for digit in range(10)]
        MetadataCatalog.get(name).set(thing_classes=classes, evaluator_type="coco")


@functools.lru_cache(maxsize=10_000)
def _png(split: str, index: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(scene_image(split, index)).save(file, "PNG", compress_level=1)
    return file.getvalue()


@functools.lru_cache(maxsize=4)
def _digits(split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The digits of a split: of every six, four for training, one for testing, one for val."""
    data = load_digits()
    remainders = {"train": (1, 2, 4, 5), "test": (0,), "val": (3,)}[split]
    chosen = np.isin(np.arange(len(data.images)) % 6, remainders)
    return (data.images[chosen] * (255 / 16)).astype(np.uint8), data.target[chosen]


@functools.lru_cache(maxsize=10_000)
def _layout(split: str, index: int) -> list[tuple[int, int, int, int]]:
    """(digit, size, x, y) of every digit of a scene; a place that overlaps is drawn again."""
    generator = _generator(split, index, stream=0)
    images, _ = _digits(split)
    placed: list[tuple[int, int, int, int]] = []
    wanted = int(generator.integers(1, MAX_DIGITS + 1))
    for _ in range(50):
        if len(placed) == wanted:
            break
        size = int(generator.integers(*SIZES))
        x, y = (int(v) for v in generator.integers(0, CANVAS - size, 2))
        digit = int(generator.integers(len(images)))
        if all(_apart(size, x, y, *other[1:]) for other in placed):
            placed.append((digit, size, x, y))
    return placed


def _apart(size: int, x: int, y: int, other_size: int, other_x: int, other_y: int) -> bool:
    """Whether two squares overlap by less than a quarter of the smaller side in one direction."""
    margin = min(size, other_size) / 4
    across = min(x + size, other_x + other_size) - max(x, other_x)
    down = min(y + size, other_y + other_size) - max(y, other_y)
    return min(across, down) < margin


def _generator(split: str, index: int, stream: int) -> np.random.Generator:
    # PCG64 and integers/normal/uniform are stable streams, but Generator gives no promise over
    # numpy versions; scenes may then change slightly, labels and boxes of one version agree.
    return np.random.default_rng([list(NUM_IMAGES).index(split), index, stream])

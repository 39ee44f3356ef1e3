"""The data sets by name, from local files; nothing is downloaded.

What must lie in DATASET.ROOT:

=======================  ===========================================================================
digits                   nothing; it comes with scikit-learn
mnist, fashion_mnist     train-images-idx3-ubyte, train-labels-idx1-ubyte and the same with t10k-,
                         plain or with .gz
cifar10, cifar100        the unpacked archive, binary or python version
utkface                  <age>_<gender>_<race>_<date>.jpg, also in sub-folders
clothing1m               the original lists, or train.txt and test.txt (``<path> <label>``)
=======================  ===========================================================================
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fvcore.common.config import CfgNode
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from sl_bench.cifar_files import read_cifar
from sl_bench.idx_files import read_mnist
from sl_bench.picture_lists import read_clothing1m, read_utkface
from sl_core import noise

# What picks the images of a smaller set, the same for every SEED.
SIZE_SEED = 271828
# scikit-learn's 1797 digits have no official split.
DIGITS_TRAIN = 1200

Targets = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """Images with one target each.

    Attributes:
        images: bytes (N, channels, height, width), or N files of pictures.
        targets: (N,) classes or, for regression, numbers.
        ids: (N,) position in the data set's own order, by which noise is drawn; so it does not
            depend on how many images are used.
    """

    images: NDArray[np.uint8] | list[Path]
    targets: Targets
    ids: NDArray[np.int64]

    def take(self, positions: NDArray[np.intp]) -> "Split":
        """The images at some positions, in that order."""
        images = (
            self.images[positions]
            if isinstance(self.images, np.ndarray)
            else [self.images[position] for position in positions]
        )
        return Split(images, self.targets[positions], self.ids[positions])


@dataclass(frozen=True)
class Dataset:
    """A data set with clean targets, as its files have it.

    Attributes:
        train: for the training.
        test: for the test.
        num_classes: 0 for regression.
        group_of_class: coarse class of each class, if the data set has them.
    """

    train: Split
    test: Split
    num_classes: int
    group_of_class: list[int] | None = None


def load_dataset(cfg: CfgNode) -> Dataset:
    """The data set of DATASET and TASK, before any noise.

    Raises:
        ValueError: a file is missing or broken, or CLASSES or a SIZE does not fit the data set.
    """
    root = Path(cfg.DATASET.ROOT)
    if cfg.DATASET.NAME != "digits" and not root.is_dir():
        raise ValueError(f"DATASET.ROOT is {root}, expected an existing folder")
    data = _read(cfg.DATASET.NAME, root)
    if cfg.TASK == "regression":
        data = replace(data, train=_as_numbers(data.train), test=_as_numbers(data.test))
        data = replace(data, num_classes=0)
    elif cfg.DATASET.CLASSES:
        data = _with_classes(data, cfg.DATASET.CLASSES)
    return replace(
        data,
        train=_first(data.train, cfg.DATASET.TRAIN_SIZE, "DATASET.TRAIN_SIZE"),
        test=_first(data.test, cfg.DATASET.TEST_SIZE, "DATASET.TEST_SIZE"),
    )


def _read(name: str, root: Path) -> Dataset:
    if name == "digits":
        return _digits()
    if name in ("cifar10", "cifar100"):
        train, test = read_cifar(root, name, "train"), read_cifar(root, name, "test")
        splits = _split(train.images, train.labels), _split(test.images, test.labels)
        if train.coarse is None:
            return Dataset(*splits, num_classes=10)
        return Dataset(*splits, num_classes=100, group_of_class=_groups(train.labels, train.coarse))
    if name in ("mnist", "fashion_mnist"):
        (images, labels), (test_images, test_labels) = (
            read_mnist(root, split) for split in ("train", "t10k")
        )
        for found in (labels, test_labels):
            if len(found) == 0 or found.max() > 9:
                raise ValueError(f"{root} has labels {sorted(set(found.tolist()))}, expected 0-9")
        return Dataset(
            _split(images[:, None], labels), _split(test_images[:, None], test_labels), 10
        )
    pictures, test_pictures = read_utkface(root) if name == "utkface" else read_clothing1m(root)
    num_classes = int(max(pictures[1].max(), test_pictures[1].max())) + 1
    return Dataset(_split(*pictures), _split(*test_pictures), num_classes)


def _digits() -> Dataset:
    digits = load_digits()
    everything = _split(digits.images.astype(np.uint8)[:, None], digits.target)
    order = noise.selected(len(digits.images), 1.0, SIZE_SEED)
    train, test = everything.take(order[:DIGITS_TRAIN]), everything.take(order[DIGITS_TRAIN:])
    return Dataset(train, test, num_classes=10)


def _split(images: NDArray[np.uint8] | list[Path], labels: NDArray[np.integer]) -> Split:
    return Split(images, labels.astype(np.int64), np.arange(len(labels), dtype=np.int64))


def _as_numbers(split: Split) -> Split:
    return replace(split, targets=split.targets.astype(np.float64))


def _groups(labels: NDArray[np.int64], coarse: NDArray[np.int64]) -> list[int]:
    """The coarse class of each of the 100 classes; -1 - class for one without images."""
    groups = [-1 - number for number in range(100)]
    for label, group in sorted(set(zip(labels.tolist(), coarse.tolist(), strict=True))):
        groups[label] = group
    return groups


def _with_classes(data: Dataset, classes: list[int]) -> Dataset:
    """Only the images of some classes, which are renumbered in the order of the list."""
    if max(classes) >= data.num_classes:
        raise ValueError(
            f"DATASET.CLASSES is {classes}, expected numbers below {data.num_classes}, the number "
            "of classes"
        )
    new_number = np.full(data.num_classes, -1)
    new_number[classes] = np.arange(len(classes))

    def only(split: Split) -> Split:
        targets = new_number[split.targets.astype(np.int64)]
        return replace(split, targets=targets).take(np.flatnonzero(targets >= 0))

    old_groups = data.group_of_class
    groups = None if old_groups is None else [old_groups[number] for number in classes]
    return Dataset(only(data.train), only(data.test), len(classes), groups)


def _first(split: Split, size: int, key: str) -> Split:
    count = len(split.targets)
    if size > count:
        raise ValueError(f"{key} is {size}, expected at most {count}, the number of images")
    if count == 0:
        raise ValueError(f"{key}: the data set has no images left")
    if size == 0:
        return split
    return split.take(np.sort(noise.selected(count, size / count, SIZE_SEED)))

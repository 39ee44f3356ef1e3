"""CIFAR-10 and CIFAR-100, from the binary or the python version of their archives."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sl_bench.array_pickle import load_array_pickle

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarSplit:
    """Images and labels of one split.

    Attributes:
        images: (N, 3, 32, 32) bytes.
        labels: (N,) class of each image; of CIFAR-100 the fine one.
        coarse: (N,) coarse class of each image; None for CIFAR-10.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    coarse: NDArray[np.int64] | None


@dataclass(frozen=True)
class _Layout:
    """Where the archives of one of the two sets put what, as (binary, python)."""

    folders: tuple[str, str]
    train: tuple[str, ...]
    test: str
    label_key: str
    coarse_key: str | None
    num_classes: int


_LAYOUTS = {
    "cifar10": _Layout(
        ("cifar-10-batches-bin", "cifar-10-batches-py"),
        tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test_batch",
        "labels",
        None,
        10,
    ),
    "cifar100": _Layout(
        ("cifar-100-binary", "cifar-100-python"),
        ("train",),
        "test",
        "fine_labels",
        "coarse_labels",
        100,
    ),
}


def read_cifar(root: Path, name: str, split: str) -> CifarSplit:
    """Read a split of cifar10 or cifar100.

    Args:
        root: the folder of the archive's files, or the one in which the archive was unpacked. If
            it has both versions, the binary one is read.
        name: cifar10 or cifar100.
        split: train or test.

    Raises:
        ValueError: a file is missing, cut off, of another form, or has a label out of range.
    """
    layout = _LAYOUTS[name]
    names = layout.train if split == "train" else (layout.test,)
    folder, suffix = _find(root, layout, names[0])
    files = [folder / (name + suffix) for name in names]
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} does not exist, expected {', '.join(f.name for f in files)}")
    parts = [_read_binary(f, layout) if suffix else _read_python(f, layout) for f in files]
    coarse = [part.coarse for part in parts if part.coarse is not None]
    return CifarSplit(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(coarse) if coarse else None,
    )


def _find(root: Path, layout: _Layout, first: str) -> tuple[Path, str]:
    """The folder, and the suffix of the version that is there."""
    for folder_name, suffix in zip(layout.folders, (".bin", ""), strict=True):
        for folder in (root, root / folder_name):
            if (folder / (first + suffix)).is_file():
                return folder, suffix
    raise ValueError(
        f"{root} has no {first}.bin and no {first}, also not in {' or '.join(layout.folders)} "
        "(DATASET.ROOT)"
    )


def _read_binary(file: Path, layout: _Layout) -> CifarSplit:
    """Records of the coarse label, if there is one, the label, and the image."""
    content = np.frombuffer(file.read_bytes(), np.uint8)
    length = PIXELS + (2 if layout.coarse_key else 1)
    if len(content) == 0 or len(content) % length:
        raise ValueError(f"{file} has {len(content)} bytes, expected a multiple of {length}")
    records = content.reshape(-1, length)
    labels = records[:, -PIXELS - 1]
    coarse = records[:, 0] if layout.coarse_key else None
    return _checked(file, layout, records[:, -PIXELS:], labels, coarse)


def _read_python(file: Path, layout: _Layout) -> CifarSplit:
    content = load_array_pickle(file)
    for key in ("data", layout.label_key, layout.coarse_key):
        if key is not None and key not in content:
            raise ValueError(f"{file} has no {key!r}, found {', '.join(content) or 'nothing'}")
    coarse = content[layout.coarse_key] if layout.coarse_key else None
    return _checked(file, layout, content["data"], content[layout.label_key], coarse)


def _checked(
    file: Path, layout: _Layout, data: object, labels: object, coarse: object
) -> CifarSplit:
    images = np.asarray(data)
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != PIXELS:
        found = f"{images.dtype} of shape {images.shape}"
        raise ValueError(f"{file} has images of {found}, expected bytes of shape (N, {PIXELS})")
    return CifarSplit(
        images.reshape(-1, 3, 32, 32),
        _checked_labels(file, labels, len(images), layout.num_classes),
        None if coarse is None else _checked_labels(file, coarse, len(images), 20),
    )


def _checked_labels(file: Path, labels: object, count: int, classes: int) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"{file} has labels of {array.dtype} and shape {array.shape}, expected {count} integers"
        )
    if count and not 0 <= array.min() <= array.max() < classes:
        found = f"{array.min()} to {array.max()}"
        raise ValueError(f"{file} has labels from {found}, expected 0 to {classes - 1}")
    return array.astype(np.int64)

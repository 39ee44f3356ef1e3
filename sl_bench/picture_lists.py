"""Data sets that are files of pictures: UTKFace by file name, Clothing1M by list files."""

import logging
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sl_core import noise

logger = logging.getLogger(__name__)

# UTKFace: part of the pictures that is for the test, what picks them, and what part may have
# another name than the form says (a handful of the original files do).
TEST_PART = 0.2
SPLIT_SEED = 20170116
MAX_MISNAMED = 0.01

Pictures = tuple[list[Path], NDArray[np.int64]]


def read_utkface(root: Path) -> tuple[Pictures, Pictures]:
    """Pictures and ages of training and test, from names ``<age>_<gender>_<race>_<date>.jpg``.

    There is no official split: a fifth of the pictures, by a hash of their names, is for the test.

    Raises:
        ValueError: no pictures, or more than 1 % of them with a name of another form.
    """
    files = sorted(path for path in root.rglob("*.jpg") if path.is_file())
    matches = [re.match(r"(\d{1,3})_\d", file.name) for file in files]
    misnamed = [file for file, match in zip(files, matches, strict=True) if match is None]
    if len(misnamed) > MAX_MISNAMED * len(files):
        raise ValueError(
            f"{misnamed[0]} is not named <age>_<gender>_<race>_<date>.jpg, nor are "
            f"{len(misnamed) - 1} more of the {len(files)} pictures in {root}"
        )
    if misnamed:
        logger.warning(
            "%d pictures without an age are left out: %s ...", len(misnamed), misnamed[0]
        )
    known = [(f, int(m[1])) for f, m in zip(files, matches, strict=True) if m is not None]
    if len(known) < 2:
        raise ValueError(f"{root} has {len(known)} pictures of UTKFace, expected at least 2 *.jpg")
    is_test = np.zeros(len(known), bool)
    is_test[noise.selected(len(known), TEST_PART, SPLIT_SEED, [f.name for f, _ in known])] = True

    def part(wanted: bool) -> Pictures:
        rows = [row for row, here in zip(known, is_test, strict=True) if here == wanted]
        return [file for file, _ in rows], np.array([age for _, age in rows], np.int64)

    return part(False), part(True)


def read_clothing1m(root: Path) -> tuple[Pictures, Pictures]:
    """Pictures and classes of training and test.

    Either the original lists (noisy_train_key_list.txt with noisy_label_kv.txt for the training,
    clean_test_key_list.txt with clean_label_kv.txt for the test), or train.txt and test.txt with a
    line ``<path> <label>`` for each picture. Paths are relative to ``root``.

    Raises:
        ValueError: a list is missing, a line has another form, or a picture does not exist.
    """
    if (root / "noisy_train_key_list.txt").is_file():
        return (
            _of_keys(root, "noisy_train_key_list.txt", "noisy_label_kv.txt"),
            _of_keys(root, "clean_test_key_list.txt", "clean_label_kv.txt"),
        )
    return _of_list(root, root / "train.txt"), _of_list(root, root / "test.txt")


def _of_list(root: Path, file: Path) -> Pictures:
    return _checked(root, file, list(_read_labels(file).items()))


def _of_keys(root: Path, keys: str, labels: str) -> Pictures:
    of_name = _read_labels(root / labels)
    names = _lines(root / keys)
    for name in names:
        if name not in of_name:
            raise ValueError(f"{root / keys} lists {name}, which has no label in {labels}")
    return _checked(root, root / keys, [(name, of_name[name]) for name in names])


def _read_labels(file: Path) -> dict[str, int]:
    labels: dict[str, int] = {}
    for line in _lines(file):
        name, _, label = line.rpartition(" ")
        if not name or not re.fullmatch(r"\d{1,9}", label):
            raise ValueError(f"{file} has the line {line!r}, expected a path and a class >= 0")
        labels[name.strip()] = int(label)
    return labels


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        raise ValueError(f"{file} does not exist (DATASET.ROOT)")
    text = file.read_text(encoding="utf-8", errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _checked(root: Path, source: Path, rows: list[tuple[str, int]]) -> Pictures:
    if not rows:
        raise ValueError(f"{source} is empty, expected a line for each picture")
    for name, _ in rows:
        # os.path, since a million Path objects take seconds.
        if not os.path.isfile(os.path.join(root, name)):  # noqa: PTH113, PTH118
            raise ValueError(f"{source} lists {name}, which is not a file in {root}")
    return [root / name for name, _ in rows], np.array([label for _, label in rows], np.int64)

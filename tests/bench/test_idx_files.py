"""idx files that the test writes are read back; damaged ones are refused."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sl_bench.idx_files import read_idx, read_mnist


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def write_mnist(root: Path, count: int = 30, suffix: str = "", sign: str = "-") -> None:
    """Images whose class shows in their brightness."""
    generator = np.random.default_rng(0)
    for split in ("train", "t10k"):
        labels = generator.integers(0, 10, count).astype(np.uint8)
        noise = generator.integers(0, 20, (count, 12, 10))
        images = (20 * labels[:, None, None] + noise).astype(np.uint8)
        for name, array in (
            (f"{split}-images{sign}idx3-ubyte", images),
            (f"{split}-labels{sign}idx1-ubyte", labels),
        ):
            content = idx_bytes(array)
            (root / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)


@pytest.mark.parametrize("suffix, sign", [("", "-"), (".gz", "-"), ("", "."), (".gz", ".")])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str, sign: str) -> None:
    write_mnist(tmp_path, 30, suffix, sign)
    images, labels = read_mnist(tmp_path, "train")
    assert images.shape == (30, 12, 10) and labels.shape == (30,)
    np.testing.assert_array_equal(images.min((1, 2)) // 20, labels)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda b: b[:-1], "has 23 bytes of data, expected 24"),
        (lambda b: b + b"x", "has 25 bytes of data, expected 24"),
        (lambda b: b"\x00\x00\x0d" + b[3:], "begins with 00000d03, expected 00000803"),
        (lambda b: b[:10], "has 10 bytes, expected a header of 16"),
        # A product that is 0 in 64 bits.
        (lambda b: b[:4] + b"\x80\0\0\0" * 2 + b"\0\0\0\x04", "0 bytes of data, expected 184467"),
        (lambda b: b"", "begins with , expected 00000803"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: object, message: str) -> None:
    assert callable(damage)
    file = tmp_path / "images"
    file.write_bytes(damage(idx_bytes(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))))
    with pytest.raises(ValueError, match=f"{file}.*{message}"):
        read_idx(file, 3)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, suffix=".gz")
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match=f"{file} is not a complete gzip file"):
        read_mnist(tmp_path, "train")


def test_labels_and_images_of_another_number_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(29, np.uint8)))
    with pytest.raises(ValueError, match="29 labels, expected 30"):
        read_mnist(tmp_path, "t10k")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} has no file train-images-idx3-ubyte"):
        read_mnist(tmp_path, "train")

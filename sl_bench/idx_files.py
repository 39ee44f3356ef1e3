"""The idx files of MNIST and Fashion-MNIST, plain or compressed with gzip."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
# 0, 0, the code of unsigned bytes; the fourth byte is the number of dimensions.
MAGIC = b"\x00\x00\x08"


def read_idx(file: Path, dimensions: int) -> Bytes:
    """Read an array of unsigned bytes.

    Args:
        file: an idx file; compressed if its name ends with .gz.
        dimensions: that the array must have.

    Raises:
        ValueError: the file is no idx file of bytes, of other dimensions, cut off or too long.
    """
    content = _content(file)
    expected = MAGIC + bytes([dimensions])
    if content[:4] != expected:
        raise ValueError(
            f"{file} begins with {content[:4].hex()}, expected {expected.hex()}: an idx file of "
            f"bytes with {dimensions} dimensions"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"{file} has {len(content)} bytes, expected a header of {start}")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", dimensions, offset=4))
    # Not numpy's product, which wraps around for the sizes of a damaged header.
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{file} has {len(content) - start} bytes of data, expected {math.prod(shape)} for "
            f"shape {shape}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_mnist(root: Path, split: str) -> tuple[Bytes, Bytes]:
    """Images (N, H, W) and labels (N,) of ``split``, train or t10k.

    The files are <split>-images-idx3-ubyte and <split>-labels-idx1-ubyte, also with a dot before
    idx, also with .gz.
    """
    images = read_idx(_find(root, f"{split}-images", "idx3-ubyte"), 3)
    file = _find(root, f"{split}-labels", "idx1-ubyte")
    labels = read_idx(file, 1)
    if len(images) != len(labels):
        raise ValueError(f"{file} has {len(labels)} labels, expected {len(images)}, one per image")
    return images, labels


def _find(root: Path, stem: str, kind: str) -> Path:
    names = [f"{stem}{sign}{kind}{end}" for end in ("", ".gz") for sign in "-."]
    for name in names:
        if (root / name).is_file():
            return root / name
    raise ValueError(f"{root} has no file {names[0]}, also not with .gz (DATASET.ROOT)")


def _content(file: Path) -> bytes:
    if file.suffix != ".gz":
        return file.read_bytes()
    try:
        with gzip.open(file) as stream:
            return stream.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{file} is not a complete gzip file: {error}") from error

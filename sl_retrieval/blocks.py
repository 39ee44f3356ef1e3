"""Descriptors in blocks of rows, so that a million of them fit through a small memory."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Descriptors = NDArray[np.floating] | Tensor
Rows = NDArray[np.float64]


def check_descriptors(
    name: str, descriptors: Descriptors, dimensions: int | None = None
) -> tuple[int, int]:
    """The shape (N, D), if ``descriptors`` is a matrix of floats and D is ``dimensions``."""
    if isinstance(descriptors, Tensor):
        is_float = descriptors.is_floating_point()
    else:
        is_float = isinstance(descriptors, np.ndarray) and descriptors.dtype.kind == "f"
    if not is_float or descriptors.ndim != 2:
        shape, dtype = (getattr(descriptors, key, "?") for key in ("shape", "dtype"))
        found = f"{type(descriptors).__name__} of {dtype}, shape {shape}"
        raise ValueError(f"{name}: {found}, expected an N x D array or tensor of floats")
    if dimensions is not None and descriptors.shape[1] != dimensions:
        found = f"{descriptors.shape[1]} dimensions"
        raise ValueError(f"{name} has {found}, expected {dimensions}; one image is one row")
    return descriptors.shape[0], descriptors.shape[1]


def rows_of(descriptors: Descriptors, index: slice | NDArray[np.int64]) -> Rows:
    """The chosen rows as float64 in main memory."""
    rows = descriptors[index]
    if isinstance(rows, Tensor):
        converted: Rows = rows.detach().to("cpu", torch.float64).numpy()
        return converted
    return np.asarray(rows, dtype=np.float64)


def blocks_of(descriptors: Descriptors, size: int) -> Iterator[tuple[int, Rows]]:
    """Consecutive blocks of at most ``size`` rows, each with the number of its first row."""
    for start in range(0, len(descriptors), size):
        yield start, rows_of(descriptors, slice(start, start + size))

"""Pickles of plain values and byte arrays, read without running anything that is in them."""

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np


class _Refused(Exception):
    """A pickle names a class or function, or an array of another kind; the message says which."""


class _ByteType:
    """Stands in for ``numpy.dtype``; only unsigned bytes pass."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1"):
            raise _Refused(f"an array of type {code!r}")

    def __setstate__(self, state: object) -> None:
        """Bytes have no order or fields to restore."""


class _ByteArray:
    """Stands in for the function that rebuilds numpy arrays.

    numpy's own functions are not lent to an unknown file: ``numpy.ndarray(shape, object, bytes)``
    makes Python objects of arbitrary addresses.
    """

    def __init__(self, *_: object) -> None:
        self.values = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_column_major, data = state
        if not isinstance(dtype, _ByteType) or is_column_major:
            raise _Refused("an array that is not of bytes, row after row")
        if not isinstance(data, bytes) or len(data) != math.prod(shape):
            raise ValueError(f"an array of shape {shape} has {len(data)} bytes")
        self.values = np.frombuffer(data, np.uint8).reshape(shape)


def _encode(text: str, encoding: str) -> bytes:
    """Stands in for ``_codecs.encode``, by which old protocols write bytes."""
    if encoding != "latin1":
        raise _Refused(f"text as {encoding}")
    return text.encode("latin1")


# The name of the module differs between old and new numpy; ndarray is only mentioned.
_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _ByteArray,
    ("numpy._core.multiarray", "_reconstruct"): _ByteArray,
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _ByteType,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise _Refused(f"an object of {module}.{name}")
        return _STAND_INS[module, name]


def load_array_pickle(file: Path) -> dict[str, Any]:
    """Read a pickled dict of names to numbers, strings, lists and arrays of unsigned bytes.

    CIFAR's python version is of this kind, as Python 2 wrote it. Its byte strings stay bytes, but
    the names become str.

    Raises:
        ValueError: the file holds anything else, is truncated, or is not a pickle. Nothing of it
            is executed.
    """
    try:
        content = _Unpickler(io.BytesIO(file.read_bytes()), encoding="bytes").load()
    except _Refused as refused:
        raise ValueError(
            f"{file} holds {refused}, expected plain values and arrays of bytes; nothing of it was "
            "executed"
        ) from None
    except Exception as error:  # a corrupt stream makes the unpickler raise almost anything
        raise ValueError(f"{file} is not a complete pickle: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds a {type(content).__name__}, expected a dict")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): (
            value.values if isinstance(value, _ByteArray) else value
        )
        for key, value in content.items()
    }

"""Files of tensors from outside: read without executing anything, and fitted to a network."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_FLOATS = {"f4": "float32", "f8": "float64"}


class _NoArray:
    """Stands in for ``numpy.ndarray``, which a pickle only mentions."""


class _FloatType:
    """Stands in for ``numpy.dtype``: the name of a float type, and its byte order."""

    def __init__(self, code: str, *_: object) -> None:
        self.name = _FLOATS[code]
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


class _FloatArray:
    """Stands in for the function that rebuilds numpy arrays: holds a checked array of floats.

    numpy's own functions must not be lent to an unknown file: ``numpy.ndarray(shape, object,
    bytes)`` makes Python objects of arbitrary addresses.
    """

    def __init__(self, *_: object) -> None:
        self.values = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_column_major, data = state
        flat = np.frombuffer(data, np.dtype(dtype.name).newbyteorder(dtype.order))
        self.values = flat.astype(dtype.name).reshape(shape, order="F" if is_column_major else "C")


# The name of the module differs between the numpy of old and of new checkpoints.
_STAND_INS: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    (_FloatArray, "numpy.core.multiarray._reconstruct"),
    (_FloatArray, "numpy._core.multiarray._reconstruct"),
    (_NoArray, "numpy.ndarray"),
    (_FloatType, "numpy.dtype"),
]


def read_state_file(file: Path, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """Read a dict of tensors, numbers, text, containers and numpy arrays of floats.

    Raises:
        ValueError: the file is missing, damaged, not a dict, or needs any other class or function;
            none is ever called.
    """
    if not file.is_file():
        raise ValueError(f"{file} does not exist or is not a file")
    try:
        with torch.serialization.safe_globals(_STAND_INS):
            content = torch.load(file, map_location=map_location, weights_only=True)
        content = _with_arrays(content)
    # Random bytes make an unpickler fail in any way there is.
    except Exception as error:
        refused = re.search(r"GLOBAL (\w[\w.]*)", str(error))
        reason = (
            f"needs {refused[1]}, which is never run"
            if refused
            else "is damaged or another kind of file"
        )
        raise ValueError(
            f"{file} {reason}; expected only tensors, numbers, text and float arrays"
        ) from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ValueError(f"{file} holds a {type(content).__name__}, expected a dict with names")
    return content


def write_state_file(file: Path, content: Mapping[str, Any]) -> None:
    """Write what ``read_state_file`` reads, atomically.

    The new file is read once before it takes the old one's place, so that a kill or an error at any
    moment leaves a file that can be loaded.

    Args:
        file: its folder must exist.
        content: of the kinds that ``read_state_file`` allows.

    Raises:
        ValueError: the content could not be loaded again.
    """
    unfinished = file.with_name(file.name + ".tmp")
    try:
        torch.save(dict(content), unfinished)
        try:
            read_state_file(unfinished)
        except ValueError as error:
            raise ValueError(f"{file} could not be loaded again: {error}") from error
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def fit_state(network: nn.Module, state: Mapping[str, Any], file: Path, name: str) -> None:
    """Load all of a network's tensors; half precision is widened.

    Args:
        network: its state dict says which names and shapes are expected.
        state: tensors by name. Batch norm's ``num_batches_tracked`` may be missing, as it is in
            the files of old torch versions.
        file: where state comes from, for the message.
        name: the network's, for the message.

    Raises:
        ValueError: a tensor is missing, too many, or of another shape; names the first.
    """
    expected = network.state_dict()
    for key, tensor in expected.items():
        if key not in state:
            if not key.endswith("num_batches_tracked"):
                raise ValueError(f"{file} does not fit {name}: {key} is missing")
        elif not isinstance(state[key], Tensor) or state[key].shape != tensor.shape:
            found = tuple(getattr(state[key], "shape", ())) or type(state[key]).__name__
            raise ValueError(
                f"{file} does not fit {name}: "
                f"{key} is {found}, expected a tensor of shape {tuple(tensor.shape)}"
            )
    for key in state:
        if key not in expected:
            raise ValueError(f"{file} does not fit {name}: {key} is not a part of it")
    network.load_state_dict(state, strict=False)


def _with_arrays(content: Any) -> Any:
    """Put the arrays in place of what stands in for them."""
    if isinstance(content, _FloatArray):
        return content.values
    if isinstance(content, dict):
        # In place, because a state dict is more than its items.
        for key, value in content.items():
            content[key] = _with_arrays(value)
    elif isinstance(content, list):
        content[:] = [_with_arrays(value) for value in content]
    elif type(content) is tuple:
        return tuple(_with_arrays(value) for value in content)
    return content

"""Pickles from elsewhere, read without running anything that is in them."""

import io
import pickle
from pathlib import Path
from typing import Any


class _ClassRefused(Exception):
    """A pickle names a class or function; the message is its name."""


class _PlainUnpickler(pickle.Unpickler):
    """Makes builtin values only: a pickle can call nothing that it cannot name."""

    def find_class(self, module: str, name: str) -> Any:
        raise _ClassRefused(f"{module}.{name}")


def load_plain_pickle(file: Path) -> Any:
    """Read a pickle of plain values: None, numbers, strings, bytes, lists, tuples, dicts, sets.

    cirtorch's training databases and the revisited ground truths are of this kind. Every class
    and function is refused before it is imported, so nothing in the file is executed. The byte
    strings of a pickle that Python 2 wrote become str: read as UTF-8, or, if any of them is not
    UTF-8, all of them as Latin-1.

    Raises:
        ValueError: the file names a class or function, is truncated, or is not a pickle.
    """
    content = file.read_bytes()
    try:
        try:
            return _load(content, "utf-8")
        except UnicodeDecodeError:
            return _load(content, "latin1")
    except _ClassRefused as refused:
        raise ValueError(
            f"{file} holds an object of {refused}, expected a pickle of plain lists, dicts, "
            "strings and numbers; nothing of it was executed"
        ) from None
    except Exception as error:  # a corrupt stream makes the unpickler raise almost anything
        raise ValueError(f"{file} is not a complete pickle: {error}") from error


def _load(content: bytes, encoding: str) -> Any:
    return _PlainUnpickler(io.BytesIO(content), encoding=encoding).load()

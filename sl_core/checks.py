"""Argument checks shared by the losses: one message form, found and expected."""

from collections.abc import Callable

# What the options of the per-sample losses mean is in their docstrings; the same name has the
# same range everywhere.
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "q": (lambda q: 0 <= q <= 1, "a number in [0, 1]"),
    "k": (lambda k: 0 < k < 1, "a number in (0, 1)"),
    "T": (lambda temperature: temperature >= 0, "a number at least 0"),
    "beta": (lambda beta: beta >= 0, "a number at least 0"),
    "lam": (lambda lam: lam >= 0, "a number at least 0"),
}


def require(holds: bool, name: str, value: object, expected: str) -> None:
    """Raise ValueError, naming the argument, what was found and what was expected."""
    if not holds:
        raise ValueError(f"{name} is {value!r}, expected {expected}")


def check_options(**options: float) -> None:
    """Raise ValueError for an option of a per-sample loss outside its range."""
    for name, value in options.items():
        holds, expected = _RANGES[name]
        require(isinstance(value, int | float) and holds(value), name, value, expected)

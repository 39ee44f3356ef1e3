"""What the configs of all trainings share: merging files and options, and checking values."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from fvcore.common.config import CfgNode


def merge_into(
    cfg: CfgNode, file: str | Path | None, options: list[str], of_any_type: Sequence[str]
) -> None:
    """Merge a YAML file, then ``KEY value`` options, into defaults; nothing of them is executed.

    Args:
        cfg: the defaults, changed in place.
        file: may have ``_BASE_``; None merges none.
        options: keys and values in turn.
        of_any_type: keys, None by default, whose value in the file an option may replace by one of
            another type.

    Raises:
        ValueError: names the source and the key.
    """
    if len(options) % 2:
        raise ValueError(f"options are {' '.join(options)}, expected pairs of key and value")
    if file is not None:
        _merge(f"{file}", lambda: cfg.merge_from_file(str(file), allow_unsafe=False))
    for key in options[::2]:
        # yacs lets a value change its type only if it was None.
        if key in of_any_type:
            section, _, last = key.rpartition(".")
            value_of(cfg, section)[last] = None
    _merge("options", lambda: cfg.merge_from_list(options))


def check_choices(cfg: CfgNode, choices_of: Mapping[str, Sequence[str]]) -> None:
    """Raise ValueError, naming the key, for a value that is none of its choices."""
    for key, choices in choices_of.items():
        if value_of(cfg, key) not in choices:
            listed = ", ".join(choices)
            raise ValueError(f"{key} is {value_of(cfg, key)!r}, expected one of {listed}")


def check_at_least(cfg: CfgNode, least_of: Mapping[str, float]) -> None:
    """Raise ValueError, naming the key, for a number below its least."""
    for key, least in least_of.items():
        if value_of(cfg, key) < least:
            raise ValueError(f"{key} is {value_of(cfg, key)}, expected at least {least}")


def check_above_zero(cfg: CfgNode, keys: Sequence[str]) -> None:
    """Raise ValueError, naming the key, for what is neither None nor a number above 0."""
    for key in keys:
        value = value_of(cfg, key)
        if not (value is None or (isinstance(value, int | float) and value > 0)):
            raise ValueError(f"{key} is {value!r}, expected a number above 0")


def value_of(cfg: CfgNode, key: str) -> Any:
    """The value, or section, of a key such as ``SOLVER.EPOCHS``."""
    node = cfg
    for part in key.split("."):
        node = node[part]
    return node


def _merge(source: str, merge: Callable[[], None]) -> None:
    """Merge, with every error of yacs and YAML as a ValueError that names the source."""
    try:
        merge()
    except (AssertionError, KeyError, ValueError, OSError, yaml.YAMLError) as error:
        raise ValueError(f"{source}: {error}") from error

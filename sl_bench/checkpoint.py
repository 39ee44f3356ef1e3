"""Files of a run's state: written whole or not at all, read without executing anything."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from fvcore.common.config import CfgNode
from torch import Tensor, nn

# What changes where or how fast a run computes, but not what.
WITHOUT_EFFECT = ("DATASET.ROOT", "DEVICE", "NUM_WORKERS", "OUTPUT_DIR")
logger = logging.getLogger(__name__)


def save_checkpoint(file: Path, content: dict[str, Any]) -> None:
    """Write tensors, numbers, text and containers atomically; the folder must exist."""
    unfinished = file.with_name(file.name + ".tmp")
    torch.save(content, unfinished)
    unfinished.replace(file)


def load_checkpoint(file: Path) -> dict[str, Any]:
    """Read a dict onto the CPU.

    Raises:
        ValueError: the file is missing, damaged, holds classes, or is no dict.
    """
    if not file.is_file():
        raise ValueError(f"{file} does not exist or is not a file")
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # random bytes make an unpickler fail in any way there is
        raise ValueError(
            f"{file} is damaged or another kind of file, expected only tensors, numbers and text; "
            "nothing of it was executed"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds a {type(content).__name__}, expected a dict")
    return content


def load_weights(network: nn.Module, file: Path) -> None:
    """Load a checkpoint of ours or a state dict; a last layer of another size stays as it is.

    Raises:
        ValueError: a tensor is missing, too many, or of another shape; names the first.
    """
    content = load_checkpoint(file)
    state: Mapping[str, Any] = content.get("network", content)
    expected = network.state_dict()
    for key in sorted(expected.keys() | state.keys()):
        if key not in expected:
            raise ValueError(f"{file} has {key}, which is not a part of the network")
        if key not in state:
            # Files of old torch versions do not have it.
            if key.endswith("num_batches_tracked"):
                continue
            raise ValueError(f"{file} has no {key}, expected the weights of the same network")
        found = tuple(state[key].shape) if isinstance(state[key], Tensor) else None
        if found is None or (found != tuple(expected[key].shape) and not key.startswith("fc.")):
            raise ValueError(
                f"{file} has {key} of shape {found}, expected {tuple(expected[key].shape)}"
            )
    fitting = {key: value for key, value in state.items() if value.shape == expected[key].shape}
    if len(fitting) < len(state):
        logger.info("%s has a last layer of another size; ours starts at random", file)
    network.load_state_dict(fitting, strict=False)


def config_digest(cfg: CfgNode) -> str:
    """SHA-256 of all settings that have an effect on the result."""
    flat = _flat(yaml.safe_load(cfg.dump()))
    text = yaml.safe_dump({k: v for k, v in flat.items() if k not in WITHOUT_EFFECT})
    return hashlib.sha256(text.encode()).hexdigest()


def check_same_run(file: Path, before: dict[str, str], now: dict[str, str]) -> None:
    """Raise ValueError, naming the differences, if a checkpoint is of other labels or settings.

    Args:
        file: the checkpoint, for the message.
        before: "config", the dumped settings, and "labels", a digest, of the checkpoint.
        now: the same of the run that wants to go on. It may have more epochs, if no earlier epoch
            would have been another one then.
    """
    if before["labels"] != now["labels"]:
        raise ValueError(f"{file} was trained on other labels than the data set has now")
    old, new = (_flat(yaml.safe_load(some["config"])) for some in (before, now))
    may_differ = set(WITHOUT_EFFECT)
    if new["SOLVER.SCHEDULE"] != "cosine" and not new["CORRECTION.ROUNDS"]:
        may_differ.add("SOLVER.EPOCHS")
    different = [
        f"{key} (was {old.get(key)!r}, is {new.get(key)!r})"
        for key in sorted(old.keys() | new.keys())
        if key not in may_differ and old.get(key) != new.get(key)
    ]
    if different:
        raise ValueError(f"{file} was trained with other settings: {', '.join(different)}")


def _flat(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"A": {"B": 1}} as {"A.B": 1}."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        inner = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return flat

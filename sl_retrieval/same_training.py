"""Whether a checkpoint belongs to the training that wants to go on from it."""

import zlib
from pathlib import Path
from typing import Any

import yaml
from fvcore.common.config import CfgNode

from sl_core import noise
from sl_retrieval.data import RetrievalData

# What a resumed training may change without becoming another one.
MAY_CHANGE = {
    "SOLVER.EPOCHS",
    "DATALOADER.NUM_WORKERS",
    "MODEL.DEVICE",
    "MODEL.WEIGHTS",
    "OUTPUT_DIR",
    "DATASETS.TEST",
    "DATASETS.DATA_ROOT",
    "TEST.SCALES",
}


def identity(cfg: CfgNode, data: RetrievalData) -> dict[str, str]:
    """What a checkpoint keeps in order to be recognised: settings, and a digest of the labels."""
    images = [zlib.crc32(name.encode()) for name in data.ids]
    return {"config": cfg.dump(), "labels": noise.digest(data.labels) + noise.digest(images)}


def check_same_training(
    file: Path, before: dict[str, str], cfg: CfgNode, data: RetrievalData
) -> None:
    """Raise ValueError, naming the differences, if ``before`` is of other labels or settings."""
    now = identity(cfg, data)
    if before["labels"] != now["labels"]:
        raise ValueError(
            f"{file} was trained on other images or labels than {data.name} has now; expected the "
            "same training set"
        )
    old, new = (_flat(yaml.safe_load(some["config"])) for some in (before, now))
    different = [
        f"{key} (was {old.get(key)!r}, is {new.get(key)!r})"
        for key in sorted(old.keys() | new.keys())
        if key not in MAY_CHANGE and old.get(key) != new.get(key)
    ]
    if different:
        raise ValueError(f"{file} was trained with other settings: {', '.join(different)}")


def _flat(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"A": {"B": 1}} as {"A.B": 1}."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return flat

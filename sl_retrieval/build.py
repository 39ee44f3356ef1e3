"""The parts of a training, by its config."""

import functools
import os
from pathlib import Path
from typing import Any

import torch
from fvcore.common.config import CfgNode

from sl_retrieval import catalog
from sl_retrieval.builders import (
    from_cirtorch_pickle,
    from_folders,
    from_list_file,
    register_builtin,
)
from sl_retrieval.criterion import RobustCriterion
from sl_retrieval.data import RetrievalData
from sl_retrieval.image_scan import read_report, without_unreadable
from sl_retrieval.network import ImageRetrievalNet, build_network


def device_from(cfg: CfgNode) -> torch.device:
    """MODEL.DEVICE; if that is empty, this process's GPU, or the CPU if there is none."""
    name = cfg.MODEL.DEVICE or ("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device(name)


def register_datasets(cfg: CfgNode) -> None:
    """Register the built-in data sets and those of the config; a known name is an error."""
    register_builtin()
    for entry in cfg.DATASETS.FOLDERS:
        name, folder = _entry("FOLDERS", entry, "[name, folder]", (2,))
        catalog.register(name, functools.partial(from_folders, name, Path(folder)))
    for entry in cfg.DATASETS.LISTS:
        expected = "[name, list file, image folder] and perhaps a split"
        name, file, folder, *rest = _entry("LISTS", entry, expected, (3, 4))
        split = rest[0] if rest else None
        build = functools.partial(from_list_file, name, Path(file), Path(folder), split)
        catalog.register(name, build)
    for entry in cfg.DATASETS.PICKLES:
        expected = "[name, pickle, image folder, split]"
        name, file, folder, part = _entry("PICKLES", entry, expected, (4,))
        build = functools.partial(from_cirtorch_pickle, name, Path(file), Path(folder), part)
        catalog.register(name, build)


def readable_data(cfg: CfgNode, name: str) -> RetrievalData:
    """A data set of the catalog without the images of DATASETS.UNREADABLE."""
    data = catalog.get(name)
    for report in cfg.DATASETS.UNREADABLE:
        data = without_unreadable(data, read_report(Path(report)), cfg.DATASETS.MAX_UNREADABLE)
    return data


def build_network_from(cfg: CfgNode) -> ImageRetrievalNet:
    """The network of MODEL, with its first weights."""
    return build_network(
        cfg.MODEL.ARCHITECTURE,
        cfg.MODEL.POOLING,
        local_whitening=cfg.MODEL.LOCAL_WHITENING,
        regional=cfg.MODEL.REGIONAL,
        whitening=cfg.MODEL.WHITENING,
        weights=cfg.MODEL.WEIGHTS,
    )


def build_criterion(cfg: CfgNode) -> RobustCriterion:
    """The loss of LOSS; an option that its robust loss does not have is not passed on."""
    robust = cfg.LOSS.ROBUST
    options: dict[str, dict[str, Any]] = {
        "superloss": {
            "tau": "avg" if robust.TAU is None else robust.TAU,
            "lam": 0.05 if robust.LAMBDA is None else robust.LAMBDA,
            "lam_scale": robust.LAMBDA_SCALE,
            "momentum": robust.MOMENTUM,
            "warmup_steps": robust.WARMUP_STEPS,
        },
        "gce": {"q": robust.Q},
        "gce_trunc": {"q": robust.Q, "k": robust.K},
    }
    return RobustCriterion(
        cfg.LOSS.NAME,
        cfg.LOSS.MARGIN,
        robust.NAME,
        separate=robust.TAU_SCOPE == "kind",
        pairs=robust.PAIRS,
        **options.get(robust.NAME, {}),
    )


def _entry(key: str, entry: Any, expected: str, lengths: tuple[int, ...]) -> list[str]:
    is_list = isinstance(entry, list | tuple) and all(isinstance(part, str) for part in entry)
    if not is_list or len(entry) not in lengths:
        raise ValueError(f"DATASETS.{key} has the entry {entry!r}, expected {expected}")
    return list(entry)

"""The training set with its noise, and what is held out of it."""

from dataclasses import dataclass, replace

import numpy as np
from fvcore.common.config import CfgNode
from numpy.typing import NDArray

from sl_bench.data import Dataset, Split, Targets, load_dataset
from sl_core import noise

# What picks the held-out part, the same for every SEED.
VALIDATION_SEED = 314159


@dataclass(frozen=True)
class BenchData:
    """What a run trains and is tested on.

    Attributes:
        train: with noisy targets.
        clean_targets: of train, (N,).
        validation: held out of the training set, with its noise; None without one.
        test: with clean targets.
        num_classes: 0 for regression.
    """

    train: Split
    clean_targets: Targets
    validation: Split | None
    test: Split
    num_classes: int

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Which training targets differ from the clean ones, (N,)."""
        return np.asarray(self.train.targets != self.clean_targets)


def load_data(cfg: CfgNode) -> BenchData:
    """Load the data set, make the noise of its training part, hold out a part of that."""
    data = load_dataset(cfg)
    noisy = replace(data.train, targets=make_noise(cfg, data))
    validation = None
    kept = np.arange(len(noisy.targets))
    if cfg.DATASET.VALIDATION:
        held_out = noise.selected(len(kept), cfg.DATASET.VALIDATION, VALIDATION_SEED, ids=noisy.ids)
        if not 0 < len(held_out) < len(kept):
            raise ValueError(
                f"DATASET.VALIDATION is {cfg.DATASET.VALIDATION}, which of {len(kept)} images "
                f"holds out {len(held_out)}; expected some, but not all"
            )
        validation = noisy.take(np.sort(held_out))
        kept = np.setdiff1d(kept, held_out)
    return BenchData(
        noisy.take(kept), data.train.targets[kept], validation, data.test, data.num_classes
    )


def make_noise(cfg: CfgNode, data: Dataset) -> Targets:
    """The targets of the training part with the noise of NOISE, (N,)."""
    kind, rate = cfg.NOISE.KIND, cfg.NOISE.RATE
    seed = cfg.SEED if cfg.NOISE.SEED == -1 else cfg.NOISE.SEED
    clean, ids = data.train.targets, data.train.ids
    if kind == "none":
        return clean
    if kind == "uniform":
        return noise.regression(clean, float(clean.min()), float(clean.max()), rate, seed, ids)
    if kind == "sym":
        return noise.symmetric(clean, data.num_classes, rate, seed, ids)
    if kind == "symkeep":
        return noise.symmetric_keep(clean, data.num_classes, rate, seed, ids)
    groups = _groups(cfg, data)
    class_map: dict[int, int] | dict[int, list[int]] = (
        noise.swapped_pairs(groups, seed) if kind == "asym_pairs" else noise.within_groups(groups)
    )
    return noise.asymmetric(clean, class_map, rate, seed, ids)


def _groups(cfg: CfgNode, data: Dataset) -> list[int]:
    groups = list(cfg.NOISE.GROUPS) or data.group_of_class
    if groups is None:
        raise ValueError(
            f"NOISE.GROUPS is empty and {cfg.DATASET.NAME} has no groups of its own, expected the "
            f"group of each of its {data.num_classes} classes for NOISE.KIND {cfg.NOISE.KIND}"
        )
    if len(groups) != data.num_classes:
        raise ValueError(
            f"NOISE.GROUPS has {len(groups)} entries, expected {data.num_classes}, one per class"
        )
    return groups

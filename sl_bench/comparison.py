"""Runs of ours beside the numbers of the papers.

A run belongs to the rows of a table whose data set, noise, rate, method and setting are its own.
How long it trained, or on how many images, may differ.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from fvcore.common.config import CfgNode

from sl_bench.config import load_config
from sl_bench.published import METRICS, PublishedResult

VEHICLES = (8, 13, 48, 58, 90, 41, 69, 81, 85, 89)  # of cifar100: gradient_rescaling.txt, C
METHODS = {
    "cce": "CCE",
    "mae": "MAE",
    "gce": "GCE",
    "gce_trunc": "Trunc L_q",
    "imae": "IMAE",
    "gr": "GR",
    "superloss": "SuperLoss",
    "data_params": "Data Parameters",
}
OTHER_NAMES = {"L_q": "GCE"}
# Key of a published setting to that of the config; other keys do not concern the training.
SETTINGS = {
    "network": "MODEL.NAME",
    "input": "LOSS.INPUT",
    "tau": "LOSS.TAU",
    "beta": "LOSS.BETA",
    "lam": "LOSS.GR_LAMBDA",
    "T": "LOSS.T",
}
# In these tables a method's name says which regularisers it has.
REGULARISER_TABLES = {("gradient_rescaling", table) for table in (8, 9, 10)}
_OF_ONE_RUN = ("SEED", "OUTPUT_DIR", "DEVICE", "NUM_WORKERS")


@dataclass(frozen=True)
class Run:
    """A run that is done: its settings, and its numbers as in result.json."""

    cfg: CfgNode
    result: dict[str, Any]


def read_run(folder: Path) -> Run:
    """The run of an OUTPUT_DIR; ValueError if result.json or config.yaml is missing or broken."""
    file = folder / "result.json"
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}, expected the result of a run that is done") from error
    return Run(load_config(folder / "config.yaml", []), result)


def comparison_table(runs: Iterable[Run], published: Sequence[PublishedResult]) -> str:
    """Markdown: published numbers, and the measured mean and deviation over seeds beside them.

    Args:
        runs: those that differ in the seed only share their lines.
        published: of ``read_published``.

    Raises:
        ValueError: two runs have the same settings and seed.
    """
    lines = [
        "| table | data set | noise | method | metric | published | measured | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in _by_seeds(runs):
        for number in published:
            if is_row_of(number, group[0].cfg) and METRICS[number.metric] in group[0].result:
                lines.append(_line(number, group))
    return "\n".join(lines)


def is_row_of(number: PublishedResult, cfg: CfgNode) -> bool:
    """Whether a run with these settings measures what the published number says."""
    is_clean = cfg.NOISE.KIND == "none" or cfg.NOISE.RATE == 0
    same_noise = (
        number.noise in ("none", "unknown")
        if is_clean
        else (number.noise, number.rate) == (cfg.NOISE.KIND, cfg.NOISE.RATE)
    )
    by_regulariser = (number.paper, number.table) in REGULARISER_TABLES
    method = _regularisers(cfg) if by_regulariser else _method(cfg)
    return (
        same_noise
        and number.dataset == _dataset(cfg)
        and OTHER_NAMES.get(number.method, number.method) == method
        and all(_agrees(cfg, *option) for option in number.options.items())
        and (number.metric == "accuracy_retrained") == (cfg.CORRECTION.ROUNDS > 0)
    )


def _dataset(cfg: CfgNode) -> str:
    classes = tuple(cfg.DATASET.CLASSES)
    if not classes:
        return str(cfg.DATASET.NAME)
    is_vehicles = cfg.DATASET.NAME == "cifar100" and sorted(classes) == sorted(VEHICLES)
    return "vehicles10" if is_vehicles else "another part"


def _method(cfg: CfgNode) -> str:
    if cfg.LOSS.NAME != "none":
        return METHODS[cfg.LOSS.NAME]
    of_input = {"cross_entropy": "CCE", "focal": "Focal Loss"}
    return of_input.get(cfg.LOSS.INPUT, "baseline")


def _regularisers(cfg: CfgNode) -> str:
    """Such as GR+L2+Dropout or, without GR, Dropout+L2."""
    names = ["L2"] * (cfg.SOLVER.WEIGHT_DECAY > 0) + ["Dropout"] * (cfg.MODEL.DROPOUT > 0)
    method = _method(cfg)
    if method == "GR":
        return "+".join([method, *names])
    return "+".join(reversed(names)) or "Baseline" if method == "CCE" else method


def _agrees(cfg: CfgNode, name: str, value: str) -> bool:
    if name not in SETTINGS:
        return True
    section, _, key = SETTINGS[name].partition(".")
    found = cfg[section][key]
    if name == "tau":
        return str(found or "expavg") == value
    return bool(found == float(value)) if isinstance(found, float) else str(found) == value


def _by_seeds(runs: Iterable[Run]) -> list[list[Run]]:
    groups: dict[str, dict[tuple[int, int], Run]] = {}
    for run in runs:
        settings = yaml.safe_load(run.cfg.dump())
        for key in _OF_ONE_RUN:
            del settings[key]
        del settings["NOISE"]["SEED"]
        seeds = (run.cfg.SEED, run.cfg.NOISE.SEED)
        group = groups.setdefault(yaml.safe_dump(settings), {})
        if seeds in group:
            before, now = group[seeds].cfg.OUTPUT_DIR, run.cfg.OUTPUT_DIR
            raise ValueError(f"{before} and {now} have the same settings and SEED {seeds[0]}")
        group[seeds] = run
    return [list(group.values()) for group in groups.values()]


def _line(number: PublishedResult, runs: Sequence[Run]) -> str:
    values = [float(run.result[METRICS[number.metric]]) for run in runs]
    deviation = statistics.stdev(values) if len(values) > 1 else None
    cells = (
        f"{number.paper} {number.table}",
        number.dataset,
        f"{number.noise} {number.rate:.0%}" if number.rate else "none",
        f"{number.method}, {number.setting}" if number.setting else number.method,
        number.metric,
        _with_deviation(number.value, number.deviation),
        _with_deviation(statistics.fmean(values), deviation),
        str(len(values)),
    )
    return f"| {' | '.join(cells)} |"


def _with_deviation(value: float, deviation: float | None) -> str:
    return f"{value:.2f}" if deviation is None else f"{value:.2f} ± {deviation:.2f}"

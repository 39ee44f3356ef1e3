"""The result of a run, from the rows of its epochs."""

from typing import Any

from fvcore.common.config import CfgNode

from sl_bench.checkpoint import config_digest
from sl_bench.noisy_data import BenchData
from sl_core import noise

Row = dict[str, Any]

# What is best when it is largest, and when it is smallest.
_LARGEST, _SMALLEST = ("accuracy",), ("mae", "truncated_error")
_OF_THE_END = (
    "train_accuracy_given",
    "train_accuracy_true",
    "fit_of_wrong_labels",
    "fit_of_right_labels",
    "hybrid_accuracy",
    "train_mae_given",
    "train_mae_true",
    "mae_of_wrong_targets",
    "mae_of_right_targets",
    "wrong_among_least_confident",
)


def summarise(history: list[Row]) -> Row:
    """Best and final test metrics of one training, and its last look at the training set.

    ``test_<metric>_best`` is the best over all epochs that were tested, as the papers report it;
    it is chosen by the test set. ``test_<metric>_by_val`` is that of the epoch which is best on the
    validation set.

    Args:
        history: a row for each epoch; the last one was tested.
    """
    tested = [row for row in history if "test_accuracy" in row or "test_mae" in row]
    summary: Row = {"epochs": len(history)}
    for metric in _LARGEST + _SMALLEST:
        key, sign = f"test_{metric}", 1 if metric in _LARGEST else -1
        if key not in tested[-1]:
            continue
        best = max(tested, key=lambda row: sign * row[key])
        summary |= {f"{key}_best": best[key], f"{key}_best_epoch": best["epoch"]}
        summary[f"{key}_final"] = tested[-1][key]
        if f"val_{metric}" in tested[-1]:
            chosen = max(tested, key=lambda row: sign * row[f"val_{metric}"])
            summary[f"{key}_by_val"] = chosen[key]
    summary |= {key: tested[-1][key] for key in _OF_THE_END if key in tested[-1]}
    summary["seconds"] = sum(row["seconds"] for row in history)
    return summary


def build_result(cfg: CfgNode, data: BenchData, history: list[Row], corrections: list[Row]) -> Row:
    """What result.json holds: the last training's summary, and how it came about.

    Args:
        cfg: of the run.
        data: with the noise that was made, before any correction.
        history: rows of all trainings; "round" tells them apart.
        corrections: summary of each label correction.
    """
    rounds = [
        summarise([row for row in history if row["round"] == number])
        for number in range(len(corrections) + 1)
    ]
    before = [
        training | {"correction": correction}
        for training, correction in zip(rounds[:-1], corrections, strict=True)
    ]
    return {
        "task": cfg.TASK,
        "dataset": cfg.DATASET.NAME,
        "model": cfg.MODEL.NAME,
        "loss": cfg.LOSS.NAME,
        "seed": cfg.SEED,
        "noise": {
            "kind": cfg.NOISE.KIND,
            "rate": cfg.NOISE.RATE,
            "seed": cfg.SEED if cfg.NOISE.SEED == -1 else cfg.NOISE.SEED,
            "wrong": int(data.is_wrong.sum()),
            "of": len(data.clean_targets),
            "digest": noise.digest(data.train.targets),
        },
        "config_digest": config_digest(cfg),
        **rounds[-1],
        **({"before_correction": before} if before else {}),
    }

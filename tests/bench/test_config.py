"""Settings: wrong ones are refused by name, and every one is read by something."""

import re
from pathlib import Path
from typing import Any

import pytest

from sl_bench.config import get_cfg, load_config

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "options, message",
    [
        (["TASK", "ranking"], "TASK is 'ranking', expected one of classification, regression"),
        (["DATASET.NAME", "imagenet"], "DATASET.NAME is 'imagenet'"),
        (["DATASET.NAME", "utkface"], "DATASET.NAME is 'utkface'.* for TASK classification"),
        (["DATASET.NAME", "mnist"], "DATASET.ROOT is empty, expected the folder .* of mnist"),
        (["DATASET.CLASSES", "[3, 3]"], "DATASET.CLASSES"),
        (
            ["DATASET.VALIDATION", "1.0"],
            r"DATASET.VALIDATION is 1.0, expected a number in \[0, 1\)",
        ),
        (["DATASET.AUGMENT", "resize_crop_flip"], "DATASET.IMAGE_SIZE is 0"),
        (["NOISE.RATE", "1.5"], r"NOISE.RATE is 1.5, expected a number in \[0, 1\]"),
        (["NOISE.KIND", "uniform"], "NOISE.KIND is 'uniform'.* for TASK classification"),
        (["LOSS.NAME", "introspection"], "LOSS.NAME is 'introspection'"),
        (["LOSS.INPUT", "l2"], "LOSS.INPUT is 'l2', expected one of cross_entropy, focal"),
        (["LOSS.TAU", "median"], "LOSS.TAU is 'median'"),
        (["LOSS.LAMBDA", "-1"], "LOSS.LAMBDA is -1"),
        (["SOLVER.BATCH_SIZE", "0"], "SOLVER.BATCH_SIZE is 0, expected at least 1"),
        (["SOLVER.MILESTONES", "[20, 10]"], "SOLVER.MILESTONES"),
        (["SOLVER.BASE_LR"], "expected pairs of key and value"),
        (["SOLVER.RATE", "1"], "options: .*SOLVER.RATE"),
        (
            ["TASK", "regression", "LOSS.INPUT", "l2", "CORRECTION.ROUNDS", "1"],
            "CORRECTION.ROUNDS is 1, expected 0 for TASK regression",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_name(options: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_config(None, options)


def test_tau_and_lambda_are_words_or_numbers() -> None:
    for tau, lam in (("logc", "auto"), ("0.5", "2")):
        cfg = load_config(None, ["LOSS.TAU", tau, "LOSS.LAMBDA", lam])
        assert str(cfg.LOSS.TAU) == tau and str(cfg.LOSS.LAMBDA) == lam


def test_a_file_is_the_base_of_another_and_is_never_executed(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("SEED: 3\nLOSS:\n  TAU: 0.5\n")
    (tmp_path / "leaf.yaml").write_text('_BASE_: "base.yaml"\nLOSS:\n  TAU: "avg"\n')
    cfg = load_config(tmp_path / "leaf.yaml", [])
    assert (cfg.SEED, cfg.LOSS.TAU) == (3, "avg")
    marker = tmp_path / "executed"
    (tmp_path / "evil.yaml").write_text(f"SEED: !!python/object/apply:os.mkdir ['{marker}']\n")
    with pytest.raises(ValueError, match=r"evil\.yaml"):
        load_config(tmp_path / "evil.yaml", [])
    assert not marker.exists()


def leaves(node: Any, prefix: str = "") -> list[str]:
    if not isinstance(node, dict):
        return [prefix[:-1]]
    return [leaf for key, value in node.items() for leaf in leaves(value, f"{prefix}{key}.")]


def test_every_key_is_read_by_something_and_explained() -> None:
    files = [f for f in (ROOT / "sl_bench").glob("*.py") if not f.name.startswith("config")]
    sources = "".join(f.read_text(encoding="utf-8") for f in files)
    config = (ROOT / "sl_bench" / "config.py").read_text(encoding="utf-8")
    for key in leaves(get_cfg()):
        last = key.split(".")[-1]
        assert re.search(rf"\.{last}\b", sources), f"nothing reads {key}"
        # A comment, or another key of the same comment, stands before it.
        before = config.split(f"cfg.{key} =")[0].rstrip().splitlines()[-1].strip()
        assert before.startswith(("#", "cfg.")), f"{key} has no comment"

"""The demo at small size: the start, both trainings, the table, results and pictures."""

import json
from pathlib import Path

import pytest

from tools import demo_retrieval as demo

SMALL = ["WARMUP.EPOCHS", "1", "WARMUP.IMAGE_SIZE", "32", "INPUT.IMAGE_SIZE", "32"]
SMALL += ["MINING.NUM_QUERIES", "8", "MINING.POOL_SIZE", "60", "SOLVER.EPOCHS", "2"]
SMALL += ["DATASETS.VAL", "procedural_val", "VALIDATION.NUM_QUERIES", "8"]


def test_writes_table_numbers_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = demo.main(tmp_path, rate=0.4, seed=1, options=SMALL)
    printed = capsys.readouterr().out
    assert "40% wrong labels" in printed
    assert "procedural_train_sym40_s1" in printed
    assert json.loads((tmp_path / "results.json").read_text()) == results
    for name in demo.METHODS:
        assert 0 < results[name]["map"] < 1
        assert f"{100 * results[name]['map']:.1f}" in printed
    for name in ("map.png", "results.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_failed_training_names_its_log(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"training of baseline failed; see .*console\.txt"):
        demo.train(tmp_path, "procedural_train", tmp_path / "missing", 0, SMALL)

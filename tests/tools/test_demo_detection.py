"""The demo at small size: both trainings, the table, results and pictures."""

import json
from pathlib import Path

import pytest

from tools import demo_detection as demo

SMALL = ["SOLVER.MAX_ITER", "24", "SOLVER.IMS_PER_BATCH", "2", "SOLVER.STEPS", "(20,)"]


def test_writes_table_numbers_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = demo.main(tmp_path, rate=0.4, seed=1, options=SMALL)
    printed = capsys.readouterr().out
    assert "40% wrong labels" in printed
    assert "digits_train_sym40_s1" in printed
    assert set(results["SuperLoss (grouped)"]) == {"AP", "AP50", "AP75", "wrong_found"}
    assert json.loads((tmp_path / "results.json").read_text())["seed"] == 1
    for name in ("detections.png", "confidence.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_failed_training_names_its_log(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"training of baseline failed; see .*console\.txt"):
        demo.main(tmp_path, options=["SOLVER.OPTIMIZER", "none"])


def test_wrong_labels_found_counts_the_least_confident(tmp_path: Path) -> None:
    rows = [{"wrong": True}, {"wrong": False}, {"wrong": True}, {"wrong": False}]
    (tmp_path / "annotation_confidence.json").write_text(json.dumps(rows))
    assert demo.wrong_among_least_confident(tmp_path) == 50


def test_overlap_is_intersection_over_union() -> None:
    assert demo._overlap([0, 0, 2, 2], [1, 1, 3, 3]) == pytest.approx(1 / 7)
    assert demo._overlap([0, 0, 1, 1], [2, 2, 3, 3]) == 0

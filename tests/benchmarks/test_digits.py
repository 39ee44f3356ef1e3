"""The experiment runner: finished runs are kept, the table shows mean and deviation."""

import json
from pathlib import Path

from benchmarks import digits
from benchmarks.grid import ROOT, run_training


def finish(run: digits.Run, output: Path, ap50: float) -> None:
    folder = run.folder(output)
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"bbox": {"AP50": ap50}}))


def test_the_table_has_mean_and_deviation_of_what_is_finished(tmp_path: Path) -> None:
    baseline, _, ours = digits.ROWS[:3]
    runs = [digits.Run(row, 40, seed) for row in (baseline, ours) for seed in (0, 1, 2)]
    for run, ap50 in zip(runs[:3], (30.0, 35.0, 40.0), strict=True):
        finish(run, tmp_path, ap50)
    table = digits.table(runs, tmp_path)
    assert "| Faster R-CNN, baseline |  |  | 35.0 ± 5.0 |  |" in table
    assert f"| {ours.title} |  |  |  |  |" in table


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    run = digits.Run(digits.ROWS[0], 40, 0)
    finish(run, tmp_path, 12.0)
    run_training(digits.training(run, tmp_path))
    assert not (run.folder(tmp_path) / "console.txt").exists()


def test_every_row_has_its_config() -> None:
    for row in digits.ROWS:
        assert (ROOT / "configs" / "detection" / f"{row.config}.yaml").exists()

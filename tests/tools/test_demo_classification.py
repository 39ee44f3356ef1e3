"""The demo at small size: same data and batches for both methods, results beside the picture."""

import json
from pathlib import Path

import pytest
import torch

from tools import demo_classification as demo


def test_writes_table_numbers_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = demo.main(tmp_path, rate=0.4, seeds=(0, 1), epochs=2)
    assert [(run.method, run.seed) for run in runs] == [
        ("baseline", 0),
        ("SuperLoss", 0),
        ("baseline", 1),
        ("SuperLoss", 1),
    ]
    for run in runs:
        assert sum(run.wrong) == round(0.4 * demo.NUM_TRAIN)
        assert len(run.accuracy) == 2
    printed = capsys.readouterr().out
    assert "40% wrong labels, 2 seeds" in printed
    saved = json.loads((tmp_path / "results.json").read_text())
    assert [run["accuracy"] for run in saved["runs"]] == [run.accuracy for run in runs]
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_training_and_test_digits_are_disjoint_and_the_same_for_every_seed() -> None:
    first, second = demo.load(0.4, seed=0), demo.load(0.4, seed=1)
    assert torch.equal(first.train, second.train)
    assert not torch.equal(first.noisy_labels, second.noisy_labels)
    assert len(first.train) == demo.NUM_TRAIN
    together = torch.cat((first.train, first.test)).flatten(1)
    assert len(together) == 1797
    assert len(together.unique(dim=0)) > 1790, "digits are drawn twice only by chance"


def test_wrong_labels_found_counts_the_least_confident() -> None:
    run = demo.Run("SuperLoss", 0, [], [0.1, 2.0, 0.2, 2.5], [True, False, False, True])
    assert demo.found_among_least_confident(run) == 50

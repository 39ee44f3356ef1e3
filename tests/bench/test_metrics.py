"""The columns of the papers' tables, on examples counted by hand, and the summary of a run."""

import math

import numpy as np
import pytest
import torch

from sl_bench.label_confidence import LabelConfidence
from sl_bench.metrics import held_out_metrics, hybrid_accuracy, training_metrics
from sl_bench.result import summarise

# Predictions 0 0 1 1 2 2 of six images.
LOGITS = torch.eye(3)[[0, 0, 1, 1, 2, 2]]
CLEAN = torch.tensor([0, 1, 1, 1, 2, 0])
GIVEN = torch.tensor([0, 0, 2, 1, 2, 2])  # the second, third and last are wrong


def test_training_accuracies_are_of_the_right_part_and_labels() -> None:
    row = training_metrics("classification", LOGITS, GIVEN, CLEAN)
    assert row == pytest.approx(
        {
            "train_accuracy_given": 100 * 5 / 6,
            "train_accuracy_true": 100 * 4 / 6,
            "fit_of_wrong_labels": 100 * 2 / 3,
            "fit_of_right_labels": 100.0,
        }
    )


def test_without_wrong_labels_their_fit_is_nothing() -> None:
    row = training_metrics("classification", LOGITS, CLEAN, CLEAN)
    assert math.isnan(row["fit_of_wrong_labels"])


@pytest.mark.parametrize(
    "final, clean_subset, hybrid", [(91.3, 100.0, 98.5), (91.4, 99.8, 98.4), (92.2, 100.0, 98.7)]
)
def test_hybrid_accuracy_gives_the_papers_numbers(
    final: float, clean_subset: float, hybrid: float
) -> None:
    """imae.txt, table 6, without noise: 10,000 test and 50,000 training images."""
    found = hybrid_accuracy(final, 10_000, clean_subset, 50_000)
    assert found == pytest.approx(hybrid, abs=0.06)


def test_errors_are_cut_at_the_threshold() -> None:
    outputs, targets = torch.tensor([[1.0], [2.0], [9.0]]), torch.tensor([1.5, 2.0, 1.0])
    row = held_out_metrics("regression", outputs, targets, 1.0)
    assert row == pytest.approx({"mae": 8.5 / 3, "truncated_error": 1.5 / 3})
    clean = torch.tensor([1.5, 2.0, 8.0])
    row = training_metrics("regression", outputs, targets, clean)
    assert row == pytest.approx(
        {
            "train_mae_given": 8.5 / 3,
            "train_mae_true": 0.5,
            "mae_of_wrong_targets": 8.0,
            "mae_of_right_targets": 0.25,
        }
    )


def test_best_final_and_chosen_by_validation_are_told_apart() -> None:
    values = [(50, 40), (80, 60), (90, 50), (70, 55)]
    history = [
        {"epoch": n, "seconds": 2.0, "test_accuracy": t, "val_accuracy": v}
        for n, (t, v) in enumerate(values)
    ]
    history.insert(1, {"epoch": 9, "seconds": 2.0})  # not tested
    summary = summarise(history)
    assert summary["test_accuracy_best"] == 90 and summary["test_accuracy_best_epoch"] == 2
    assert summary["test_accuracy_final"] == 70 and summary["test_accuracy_by_val"] == 80
    assert summary["seconds"] == 10.0
    errors = [{"epoch": n, "seconds": 0.0, "test_mae": e} for n, e in enumerate((3.0, 1.0, 2.0))]
    assert summarise(errors)["test_mae_best"] == 1.0


def test_the_least_believed_labels_come_first_and_old_epochs_count_less() -> None:
    record = LabelConfidence(4)
    for confidences in ([1.0, 0.2, 1.0, 1.0], [0.1, 0.2, 1.0, 1.0]):
        losses = torch.tensor([1.0, 1.0, 1.0, 3.0])
        record.record(torch.arange(4), torch.tensor(confidences), losses)
        record.end_epoch()
    mean = (0.9 * 1.0 + 0.1) / 1.9
    np.testing.assert_allclose(record.means()[0][0], mean, rtol=1e-6)
    # Equal confidence: the larger loss is the more suspicious.
    assert record.suspicion_order().tolist() == [1, 0, 3, 2]
    assert record.precision(np.array([True, True, False, False])) == 100.0
    assert record.precision(np.array([False, True, True, False])) == 50.0
    assert math.isnan(record.precision(np.zeros(4, bool)))

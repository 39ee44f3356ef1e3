"""Label correction replaces what the network is sure of, and nothing else."""

import numpy as np
import torch

from sl_bench.label_correction import corrected_labels, correction_summary

PROBABILITIES = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.0, 0.5, 0.5], [0.1, 0.2, 0.7]])
LABELS = np.array([2, 2, 2, 2])


def test_only_sure_predictions_replace_labels() -> None:
    logits = PROBABILITIES.clamp(min=1e-9).log()
    assert corrected_labels(logits, LABELS, 0.0).tolist() == [0, 0, 1, 2]
    assert corrected_labels(logits, LABELS, 0.45).tolist() == [0, 2, 1, 2]
    assert corrected_labels(logits, LABELS, 0.8).tolist() == [0, 2, 2, 2]
    assert corrected_labels(logits, LABELS, 1.0).tolist() == LABELS.tolist()
    assert LABELS.tolist() == [2, 2, 2, 2]


def test_the_summary_counts_changes_and_right_labels() -> None:
    after, clean = np.array([0, 0, 1, 2]), np.array([0, 2, 1, 2])
    assert correction_summary(LABELS, after, clean) == {
        "labels_changed": 3,
        "right_labels_before": 50.0,
        "right_labels_after": 75.0,
    }

"""Confidence per image against sums made by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sl_retrieval.data import RetrievalData
from sl_retrieval.label_confidence import KEPT_PER_EPOCH, LabelConfidence


def some_data() -> RetrievalData:
    return RetrievalData(
        name="five",
        images=tuple("abcde"),
        labels=np.array([0, 0, 0, 1, 1]),
        label_names=("x", "y"),
        clean_labels=np.array([0, 0, 1, 1, 1]),
    )


def test_means_are_those_of_all_pairs_with_older_epochs_counting_less() -> None:
    record = LabelConfidence(some_data())
    record.record(
        torch.tensor([[0, 1], [0, 2]]), torch.tensor([1.0, 0.2]), torch.tensor([0.1, 0.9])
    )
    record.end_epoch()
    record.record(torch.tensor([[2, 0]]), torch.tensor([0.4]), torch.tensor([0.7]))
    record.end_epoch()
    confidence, loss = record.means()
    kept = KEPT_PER_EPOCH
    np.testing.assert_allclose(confidence[0], (kept * 1.2 + 0.4) / (kept * 2 + 1))
    np.testing.assert_allclose(loss[0], (kept * 1.0 + 0.7) / (kept * 2 + 1))
    np.testing.assert_allclose(confidence[1], 1.0)
    np.testing.assert_allclose(confidence[2], (kept * 0.2 + 0.4) / (kept + 1))
    assert np.isnan(confidence[3:]).all()


def test_the_least_believed_come_first_and_equal_ones_by_their_loss(tmp_path: Path) -> None:
    record = LabelConfidence(some_data())
    pairs = torch.tensor([[0, 1], [2, 2], [3, 4]])
    record.record(pairs, torch.tensor([1.0, 0.1, 1.0]), torch.tensor([0.1, 0.9, 0.3]))
    record.end_epoch()
    assert record.suspicion_order().tolist() == [2, 3, 4, 0, 1]
    assert record.precision() == 1
    record.write(tmp_path / "rows.json")
    first = json.loads((tmp_path / "rows.json").read_text())[0]
    expected = {"image": "c", "label": "x", "clean_label": "y", "is_wrong": True}
    assert first == expected | {
        "confidence": pytest.approx(0.1),
        "loss": pytest.approx(0.9),
    }


def test_without_known_wrong_labels_there_is_no_precision() -> None:
    data = some_data()
    clean = RetrievalData("clean", data.images, data.labels, data.label_names)
    record = LabelConfidence(clean)
    record.record(torch.tensor([[0, 1]]), torch.tensor([1.0]), torch.tensor([0.1]))
    record.end_epoch()
    assert np.isnan(record.precision())

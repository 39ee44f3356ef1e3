"""Recall@K against a loop; NMI where the answer is known."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import mutual_info_score

from sl_retrieval import clustering_metrics
from sl_retrieval.clustering_metrics import cluster_nmi, embedding_metrics, recall_at


def unit_rows(seed: int, count: int, dimensions: int = 3) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((count, dimensions))
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("f4")
    return unit


@pytest.mark.parametrize("rows", [4, 1000])
def test_recall_is_that_of_a_loop(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering_metrics, "ROWS_AT_ONCE", rows)
    embeddings = unit_rows(0, 30)
    labels = np.random.default_rng(1).integers(0, 8, 30)
    found = recall_at(embeddings, labels, (1, 2, 5, 29))
    for k, recall in found.items():
        hits = 0
        for query in range(30):
            others = [i for i in range(30) if i != query]
            nearest = sorted(others, key=lambda i: -float(embeddings[query] @ embeddings[i]))
            hits += any(labels[i] == labels[query] for i in nearest[:k])
        assert recall == pytest.approx(hits / 30)


def test_a_sample_does_not_find_itself_and_ties_go_to_the_first() -> None:
    embeddings = np.ones((3, 1), dtype=np.float32)
    assert recall_at(embeddings, np.array([0, 1, 0]), (1, 2)) == {1: 1 / 3, 2: 2 / 3}
    assert recall_at(embeddings, np.array([0, 1, 2]), (1, 2)) == {1: 0, 2: 0}


def test_nmi_is_one_for_clean_clusters_and_low_for_random_labels() -> None:
    centres = np.eye(4, dtype=np.float32)
    labels = np.arange(400) % 4
    noise = 0.01 * np.random.default_rng(0).standard_normal((400, 4)).astype(np.float32)
    assert cluster_nmi(centres[labels] + noise, labels) == pytest.approx(1)
    shuffled = np.random.default_rng(1).permutation(labels)
    assert cluster_nmi(centres[labels] + noise, shuffled) < 0.05


def test_nmi_is_twice_the_information_over_the_entropies() -> None:
    """Two clusters that cut across three classes, by hand."""
    points = np.array([[0.0], [0.01], [0.02], [5.0], [5.01], [9.0]], dtype=np.float32)
    classes, clusters = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 1, 1, 2])

    def entropy(labels: NDArray[np.int64]) -> float:
        parts = np.bincount(labels) / len(labels)
        return float(-(parts * np.log(parts)).sum())

    expected = 2 * mutual_info_score(classes, clusters) / (entropy(classes) + entropy(clusters))
    assert cluster_nmi(points, classes) == pytest.approx(expected)


def test_the_seed_decides_k_means() -> None:
    embeddings, labels = unit_rows(3, 60), np.arange(60) % 6
    assert cluster_nmi(embeddings, labels, 1) == cluster_nmi(embeddings, labels, 1)
    assert len({cluster_nmi(embeddings, labels, seed) for seed in range(4)}) > 1


def test_both_are_named_and_bad_ks_refused() -> None:
    embeddings, labels = unit_rows(4, 10), np.arange(10) % 2
    assert list(embedding_metrics(embeddings, labels, (1, 4))) == ["recall@1", "recall@4", "nmi"]
    for ks in ((0,), (10,), ()):
        with pytest.raises(ValueError, match="K is"):
            recall_at(embeddings, labels, ks)

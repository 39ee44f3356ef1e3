"""Recall@K and NMI of embeddings, as metric learning reports them.

pytorch-metric-learning's AccuracyCalculator needs faiss for both; these are exact and need none.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from sl_core.checks import require

RECALLS = (1, 2, 4, 8)
ROWS_AT_ONCE = 1024


def recall_at(
    embeddings: NDArray[np.float32], labels: NDArray[np.int64], ks: Sequence[int] = RECALLS
) -> dict[int, float]:
    """Part of the samples that have one of their own class among their K nearest others.

    By the cosine; of equally near samples, the one that comes first is nearer. Every sample counts,
    also one that is alone in its class and cannot be found.

    Args:
        embeddings: (N, D) of unit length.
        labels: (N,)
        ks: each in [1, N - 1].

    Returns:
        K to recall, in [0, 1].
    """
    count = len(labels)
    in_range = bool(ks) and min(ks) >= 1 and max(ks) <= count - 1
    require(in_range, "K", list(ks), f"numbers in 1 to {count - 1}, one less than the samples")
    first_hit = np.empty(count)
    for start in range(0, count, ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, count))
        scores = embeddings[rows] @ embeddings.T
        scores[np.arange(len(rows)), rows] = -np.inf
        nearest = np.argsort(-scores, axis=1, kind="stable")[:, : max(ks)]
        hits = labels[nearest] == labels[rows, None]
        first_hit[rows] = np.where(hits.any(1), hits.argmax(1), np.inf)
    return {k: float((first_hit < k).mean()) for k in ks}


def cluster_nmi(embeddings: NDArray[np.float32], labels: NDArray[np.int64], seed: int = 0) -> float:
    """2 I(classes; clusters) / (H(classes) + H(clusters)); as many k-means clusters as classes.

    Args:
        embeddings: (N, D)
        labels: (N,)
        seed: of k-means, which starts once, by k-means++.

    Returns:
        In [0, 1]; 1 if the clusters are the classes.
    """
    k_means = KMeans(len(np.unique(labels)), n_init=1, random_state=seed)
    return float(normalized_mutual_info_score(labels, k_means.fit_predict(embeddings)))


def embedding_metrics(
    embeddings: NDArray[np.float32],
    labels: NDArray[np.int64],
    ks: Sequence[int] = RECALLS,
    seed: int = 0,
) -> dict[str, float]:
    """Both: recall@1, ..., nmi."""
    recalls = recall_at(embeddings, labels, ks)
    named = {f"recall@{k}": recall for k, recall in recalls.items()}
    return named | {"nmi": cluster_nmi(embeddings, labels, seed)}

"""Hard negatives: the nearest images of other clusters, at most one of each."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FIRST_LIST_LENGTH = 32
BLOCK_ELEMENTS = 1 << 24


def mine_negatives(
    queries: Tensor,
    query_labels: NDArray[np.int64],
    pool: Tensor,
    pool_labels: NDArray[np.int64],
    count: int,
) -> NDArray[np.int64]:
    """Positions in the pool of the ``count`` hardest negatives of every query.

    Walk down the pool by descending dot product, and take an image unless its cluster is the
    query's or one that was taken before. Images of equal score come in the order of the pool.
    Exact, without sorting the pool: lists of the best few are made by top-k and lengthened only for
    queries that need it; a block of queries at a time, so memory stays bounded.

    Args:
        queries: (Q, D) unit descriptors.
        query_labels: (Q,) their clusters.
        pool: (P, D) unit descriptors.
        pool_labels: (P,) their clusters.
        count: negatives for each query, at least 0.

    Returns:
        (Q, count) positions in the pool, hardest first.
    """
    check_clusters(query_labels, pool_labels, count)
    chosen = np.empty((len(queries), count), dtype=np.int64)
    if count == 0:
        return chosen
    device = queries.device
    labels = torch.as_tensor(pool_labels, device=device)
    own = torch.as_tensor(query_labels, device=device)
    rows = max(1, BLOCK_ELEMENTS // max(1, len(pool)))
    for start in range(0, len(queries), rows):
        block = slice(start, start + rows)
        scores = queries[block] @ pool.T
        chosen[block] = _hardest(scores, own[block], labels, count).cpu().numpy()
    return chosen


def check_clusters(
    query_labels: NDArray[np.int64], pool_labels: NDArray[np.int64], count: int
) -> None:
    """Raise ValueError if some query has fewer than ``count`` other clusters in the pool."""
    clusters = np.unique(pool_labels)
    others = len(clusters) - int(np.isin(query_labels, clusters).any())
    if others < count:
        raise ValueError(
            f"the pool of {len(pool_labels)} images has {len(clusters)} clusters, so a query has "
            f"{others} others; expected at least {count}, the number of negatives"
        )


def _hardest(scores: Tensor, own: Tensor, labels: Tensor, count: int) -> Tensor:
    """The choice for a block: scores (Q, P), own clusters (Q,) to positions (Q, count)."""
    chosen = torch.empty(len(scores), count, dtype=torch.long, device=scores.device)
    open_rows = torch.arange(len(scores), device=scores.device)
    length = min(max(FIRST_LIST_LENGTH, 4 * count), len(labels))
    while len(open_rows):
        best, positions = scores[open_rows].topk(length, dim=1)
        # top-k leaves the order of equal scores open: first by position, then stably by score.
        positions, order = positions.sort(dim=1)
        best, stable = best.gather(1, order).sort(dim=1, descending=True, stable=True)
        positions = positions.gather(1, stable)
        clusters = labels[positions]
        is_new = clusters != own[open_rows][:, None]
        is_new &= ~_seen_before(clusters)
        rank = is_new.cumsum(1)
        takes = is_new & (rank <= count)
        # Images that tie with the end of the list may be missing from it, so the choice is final
        # only if it lies strictly above.
        is_above = best > best[:, -1:]
        is_final = (takes & is_above).sum(1) == count
        if length == len(labels):
            is_final = torch.ones_like(is_final)
        chosen[open_rows[is_final]] = positions[is_final][takes[is_final]].reshape(-1, count)
        open_rows = open_rows[~is_final]
        length = min(4 * length, len(labels))
    return chosen


def _seen_before(clusters: Tensor) -> Tensor:
    """Whether the same cluster stands further left in its row: (Q, L) to bool (Q, L)."""
    grouped, order = clusters.sort(dim=1, stable=True)
    repeated = torch.zeros_like(grouped, dtype=torch.bool)
    repeated[:, 1:] = grouped[:, 1:] == grouped[:, :-1]
    return torch.zeros_like(repeated).scatter(1, order, repeated)

"""The tuples of an epoch: query, positive and mined negatives."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sl_retrieval import distributed
from sl_retrieval.data import RetrievalData
from sl_retrieval.mining import check_clusters, mine_negatives

Indices = NDArray[np.int64]
RANDOM_DIMENSIONS = 16


@dataclass(frozen=True)
class EpochTuples:
    """Indices into the images of a data set, a row for each tuple.

    Attributes:
        indices: (Q, 2 + K): query, positive, K negatives.
    """

    indices: Indices

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class Draw:
    """What chance decides in an epoch, a function of (seed, epoch) alone.

    Attributes:
        queries: (Q,) indices.
        positives: (Q,) indices, each of its query's label.
        pool: (P,) indices without repetition, from which negatives are mined.
        random_descriptors: (Q + P, 16) for an epoch with random negatives.
    """

    queries: Indices
    positives: Indices
    pool: Indices
    random_descriptors: Tensor


def draw_epoch(
    data: RetrievalData, num_queries: int, pool_size: int, seed: int, epoch: int
) -> Draw:
    """Draw queries, positives and pool; fewer if the data set has fewer.

    Without fixed pairs, queries are images that share their label with another one, and the
    positive is drawn uniformly among those others.
    """
    generator = np.random.default_rng([seed, epoch])
    if data.pairs is not None:
        chosen = data.pairs[generator.permutation(len(data.pairs))[:num_queries]]
        queries, positives = chosen[:, 0], chosen[:, 1]
    else:
        queries, positives = pairs_of_labels(data.labels, num_queries, generator)
    pool = generator.permutation(len(data.images))[:pool_size]
    random = generator.standard_normal((len(queries) + len(pool), RANDOM_DIMENSIONS))
    return Draw(queries, positives, pool, torch.from_numpy(random).float())


def check_draws(
    data: RetrievalData,
    num_negatives: int,
    num_queries: int,
    pool_size: int,
    seed: int,
    epochs: range,
) -> None:
    """Raise ValueError if some epoch will have no query, or a query too few other labels.

    Draws depend on seed and epoch alone, so all of them can be looked at before the training.
    """
    for epoch in epochs:
        draw = draw_epoch(data, num_queries, pool_size, seed, epoch)
        if not len(draw.queries):
            raise ValueError(
                f"{data.name}: no label has two images, so there is no pair to train on"
            )
        try:
            check_clusters(data.labels[draw.queries], data.labels[draw.pool], num_negatives)
        except ValueError as error:
            raise ValueError(
                f"{data.name}, epoch {epoch + 1}: {error} (NEGATIVES and POOL_SIZE)"
            ) from None


def mine_epoch(
    data: RetrievalData,
    draw: Draw,
    num_negatives: int,
    describe: Callable[[Indices], Tensor] | None,
) -> EpochTuples:
    """Add the hardest negatives of the pool to the drawn pairs.

    Args:
        data: the data set.
        draw: the epoch's draw.
        num_negatives: for each query.
        describe: gives descriptors (n, D) of images by index; None takes random ones, which makes
            random negatives.
    """
    count = len(draw.queries)
    if describe is None:
        descriptors = draw.random_descriptors
    else:
        # Many queries are in the pool as well.
        images, places = np.unique(np.concatenate([draw.queries, draw.pool]), return_inverse=True)
        descriptors = describe(images)[places]
    # Each process mines for a part of the queries.
    rank, processes = distributed.rank(), distributed.world_size()
    own = np.array_split(np.arange(count), processes)[rank]
    mined = mine_negatives(
        descriptors[own],
        data.labels[draw.queries[own]],
        descriptors[count:],
        data.labels[draw.pool],
        num_negatives,
    )
    parts = distributed.gather_parts({rank: torch.from_numpy(mined)}, processes)
    negatives = torch.cat(parts).numpy()
    columns = (draw.queries[:, None], draw.positives[:, None], draw.pool[negatives])
    return EpochTuples(np.concatenate(columns, axis=1))


def matching_pairs(data: RetrievalData) -> tuple[Indices, Indices]:
    """The fixed pairs of a data set, or one for each image that shares its label, always the same.

    Returns:
        Positions of queries and of their positives, (M,) each.
    """
    if data.pairs is not None:
        return data.pairs[:, 0], data.pairs[:, 1]
    queries, positives = pairs_of_labels(data.labels, len(data.labels), np.random.default_rng(0))
    if not len(queries):
        raise ValueError(f"{data.name}: no label has two images, so there are no pairs")
    return queries, positives


def pairs_of_labels(
    labels: Indices, count: int, generator: np.random.Generator
) -> tuple[Indices, Indices]:
    """Up to ``count`` images that share their label, and another image of it for each.

    Args:
        labels: (N,) integers.
        count: at least 0.
        generator: decides which images, in which order, and their partners, uniformly.

    Returns:
        Two (M,) arrays of positions in ``labels``, M at most ``count``.
    """
    order = np.argsort(labels, kind="stable")
    _, first, size = np.unique(labels[order], return_index=True, return_counts=True)
    group = np.repeat(np.arange(len(size)), size)  # of each place in the order
    places = np.flatnonzero(size[group] > 1)
    chosen = generator.permutation(places)[:count]
    start, length = first[group[chosen]], size[group[chosen]]
    # Going on by 1 to length - 1 within the own group never comes back to the image itself.
    away = generator.integers(1, length)
    partner = start + (chosen - start + away) % length
    return order[chosen], order[partner]

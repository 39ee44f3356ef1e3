"""Exact mAP and mP@k of Oxford, Paris and their revisited forms, at any number of distractors.

The ranks, ties included, are those of ``sl_retrieval.ranking``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sl_core.checks import require
from sl_retrieval.blocks import Descriptors
from sl_retrieval.ground_truth import (
    CLASSIC,
    REVISITED,
    GroundTruth,
    Indices,
    Relevance,
    checked_relevance,
)
from sl_retrieval.ranking import CHUNK_SIZE, exact_ranks

RelevanceOfQueries = GroundTruth | Sequence[Mapping[str, Any]]
Metrics = TypedDict(
    "Metrics",
    {
        "map": float,
        "mp@1": float,
        "mp@5": float,
        "mp@10": float,
        "per_query": dict[str, list[float]],
    },
)

# Protocol to (positives, ignored), as revisitop defines them.
PROTOCOLS = {
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}
_CUTOFFS = (1, 5, 10)


def evaluate_revisited(
    query_descriptors: Descriptors,
    database_descriptors: Descriptors,
    gnd: RelevanceOfQueries,
    distractors: Iterable[Descriptors] = (),
    *,
    chunk_size: int = CHUNK_SIZE,
) -> dict[str, Metrics]:
    """mAP and mP@k of the protocols easy, medium and hard, as revisitop defines them.

    With r_j the 0-based rank of the j-th of n positives (j from 0), ignored images not counted:

        AP  = 1 / (2 n) sum_j (j / r_j + (j + 1) / (r_j + 1)), with j / r_j = 1 where r_j = 0
        P@k = (positives with r_j < k') / k', with k' = min(k, r_{n-1} + 1)

    easy: easy images are positives, hard ones ignored; hard: the reverse; medium: both are
    positives. Junk is always ignored. A query without positives is left out of the means.

    Args:
        query_descriptors: (Q, D) floats of any precision, numpy (memory-mapped too) or torch,
            of the queries cropped to their boxes.
        database_descriptors: (N, D), likewise.
        gnd: ``GroundTruth``, its ``relevance``, or cirtorch's list of dicts with lists of
            database positions ``easy``, ``hard``, ``junk``.
        distractors: arrays (n_i, D), wrong answers to every query; read once.
        chunk_size: rows scored at a time. Memory is about chunk_size x (D + 256) x 8 bytes.

    Returns:
        Per protocol ``map``, ``mp@1``, ``mp@5``, ``mp@10`` in [0, 1], nan if no query has a
        positive, and ``per_query``: lists of Q values ``ap``, ``p@1``, ``p@5``, ``p@10``, nan
        where the query has no positive.

    Raises:
        ValueError: shapes, number of queries or positions do not fit, or a number is not finite.
    """
    lists = _relevance(gnd, REVISITED, len(database_descriptors))
    ranks = _ranks(query_descriptors, database_descriptors, lists, distractors, chunk_size)
    return {
        protocol: _metrics(ranks, positive, ignored)
        for protocol, (positive, ignored) in PROTOCOLS.items()
    }


def evaluate_classic(
    query_descriptors: Descriptors,
    database_descriptors: Descriptors,
    gnd: RelevanceOfQueries,
    distractors: Iterable[Descriptors] = (),
    *,
    chunk_size: int = CHUNK_SIZE,
) -> Metrics:
    """mAP and mP@k with ``ok`` as positives and ``junk`` ignored; else as evaluate_revisited."""
    lists = _relevance(gnd, CLASSIC, len(database_descriptors))
    ranks = _ranks(query_descriptors, database_descriptors, lists, distractors, chunk_size)
    return _metrics(ranks, ("ok",), ("junk",))


def relevance_from_labels(
    query_labels: ArrayLike, database_labels: ArrayLike, same: ArrayLike | None
) -> list[Relevance]:
    """Ground truth for ``evaluate_classic`` from class labels.

    Args:
        query_labels: (Q,) integers or strings.
        database_labels: (N,) likewise.
        same: (Q,) position of each query in the database, for leave-one-out; None if the queries
            are not in the database.

    Returns:
        Per query ``ok``, the images of its label without itself, and ``junk``, itself.
    """
    wanted, labels = np.asarray(query_labels), np.asarray(database_labels)
    if same is None:
        own = np.empty((len(wanted), 0), np.int64)
    else:
        own = np.asarray(same, np.int64).reshape(-1, 1)
        require(len(own) == len(wanted), "length of same", len(own), f"{len(wanted)}")
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    first, last = np.searchsorted(ordered, wanted), np.searchsorted(ordered, wanted, side="right")
    return [
        {"ok": np.setdiff1d(order[start:stop], itself), "junk": itself}
        for start, stop, itself in zip(first, last, own, strict=True)
    ]


def _relevance(gnd: RelevanceOfQueries, keys: tuple[str, ...], count: int) -> list[Relevance]:
    if isinstance(gnd, GroundTruth):
        found = f"{count} for the {len(gnd.images)} images of {gnd.name}"
        require(count == len(gnd.images), "number of database descriptors", found, "one per image")
        gnd = gnd.relevance
    return [
        checked_relevance(entry, keys, count, f"ground truth of query {query}")
        for query, entry in enumerate(gnd)
    ]


def _ranks(
    queries: Descriptors,
    database: Descriptors,
    lists: list[Relevance],
    distractors: Iterable[Descriptors],
    chunk_size: int,
) -> list[Relevance]:
    """Per query and key, the ranks of the images that are listed."""
    labelled = [np.concatenate(list(entry.values())) for entry in lists]
    ranks = exact_ranks(queries, database, labelled, distractors, chunk_size=chunk_size)
    ends = [np.cumsum([len(indices) for indices in entry.values()])[:-1] for entry in lists]
    return [
        dict(zip(entry, np.split(of_query, end), strict=True))
        for entry, of_query, end in zip(lists, ranks, ends, strict=True)
    ]


def _metrics(
    ranks: list[Relevance], positive: tuple[str, ...], ignored: tuple[str, ...]
) -> Metrics:
    values = np.array([_of_query(entry, positive, ignored) for entry in ranks])
    values = values.reshape(len(ranks), 1 + len(_CUTOFFS))
    counted = values[~np.isnan(values[:, 0])]
    means = counted.mean(axis=0) if len(counted) else np.full(values.shape[1], np.nan)
    names = ("ap", *(f"p@{k}" for k in _CUTOFFS))
    return {
        "map": float(means[0]),
        "mp@1": float(means[1]),
        "mp@5": float(means[2]),
        "mp@10": float(means[3]),
        "per_query": dict(zip(names, values.T.tolist(), strict=True)),
    }


def _of_query(
    ranks: Relevance, positive: tuple[str, ...], ignored: tuple[str, ...]
) -> NDArray[np.float64]:
    """AP and P@k of one query: (1 + cut-offs,), nan without positives."""
    found, skipped = (
        np.sort(np.concatenate([ranks[key] for key in keys])) for keys in (positive, ignored)
    )
    if not len(found):
        return np.full(1 + len(_CUTOFFS), np.nan)
    found = found - np.searchsorted(skipped, found)
    cutoffs = np.minimum(_CUTOFFS, found[-1] + 1)
    precision = np.searchsorted(found, cutoffs) / cutoffs
    return np.array([_average_precision(found), *precision])


def _average_precision(ranks: Indices) -> float:
    """Area under the precision-recall curve by trapezoids, from ascending 0-based ranks."""
    before = np.arange(len(ranks))
    precision_before = np.where(ranks == 0, 1.0, before / np.maximum(ranks, 1))
    precision_after = (before + 1) / (ranks + 1)
    return float((precision_before + precision_after).mean() / 2)

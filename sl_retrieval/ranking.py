"""Exact ranks of a few images among millions, without sorting the millions.

    score of an image = <query, image>, computed in float64 and rounded to float32
    order             = score descending; equal scores in the order of the database, and
                        distractors after all database images

which is a stable full argsort of -scores over [database; distractors]. The rank of an image is
the number of better ones. So database and distractors stream through in chunks, the scores of a
chunk are sorted per query (values only, no positions), the scores of the chosen images are looked
up in them, and the counts add up: the memory is that of one chunk.

Why float64 and a rounding: float32 products of BLAS depend in their last bit on the shape of the
matrices and on the position in them, so that two copies of an image would not tie, and the
ranking would change with the chunk size. After the rounding the score of a pair of descriptors
is the same everywhere, but for a chance of about 1e-8 that the exact score lies on a boundary.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sl_core.checks import require
from sl_retrieval.blocks import Descriptors, Rows, blocks_of, check_descriptors, rows_of

Indices = NDArray[np.int64]
Keys = NDArray[np.float32]  # minus the scores: ascending is best first

CHUNK_SIZE = 4096
_QUERIES_AT_ONCE = 128


def exact_ranks(
    query_descriptors: Descriptors,
    database_descriptors: Descriptors,
    chosen: Sequence[Indices],
    distractors: Iterable[Descriptors] = (),
    *,
    chunk_size: int = CHUNK_SIZE,
) -> list[Indices]:
    """0-based ranks of chosen database images among all images, in the order defined above.

    Args:
        query_descriptors: (Q, D) floats of any precision, numpy (memory-mapped too) or torch.
        database_descriptors: (N, D), likewise.
        chosen: per query, distinct positions in the database.
        distractors: arrays (n_i, D); read once.
        chunk_size: rows scored at a time, at least 1. Memory is about
            chunk_size x (D + 256) x 8 bytes.

    Returns:
        Per query, the ranks of its chosen images in the order given.
    """
    require(chunk_size >= 1, "chunk_size", chunk_size, "at least 1")
    count, dimensions = check_descriptors("query descriptors", query_descriptors)
    check_descriptors("database descriptors", database_descriptors, dimensions)
    require(len(chosen) == count, "number of queries in the ground truth", len(chosen), f"{count}")
    queries = rows_of(query_descriptors, slice(None))
    finite = np.isfinite(queries).all(axis=1)
    if not finite.all():
        raise ValueError(f"query descriptor {finite.argmin()} is not finite")
    counters = [
        _Counter(query, database_descriptors, indices)
        for query, indices in zip(queries, chosen, strict=True)
    ]
    for start, block in blocks_of(database_descriptors, chunk_size):
        for keys, group in _scored(queries, counters, block, "database descriptor", start):
            for row, counter in zip(keys, group, strict=True):
                counter.add_database(row, start)
    for number, chunk in enumerate(distractors):
        name = f"distractor chunk {number}"
        check_descriptors(name, chunk, dimensions)
        for start, block in blocks_of(chunk, chunk_size):
            for keys, group in _scored(queries, counters, block, f"{name}, descriptor", start):
                keys.sort(axis=1)
                for row, counter in zip(keys, group, strict=True):
                    counter.better += np.searchsorted(row, counter.keys, side="left")
    return [counter.ranks() for counter in counters]


class _Counter:
    """The chosen images of one query, best first, and how many of the others beat each."""

    def __init__(self, query: Rows, database: Descriptors, indices: Indices) -> None:
        keys = _keys(query[None], rows_of(database, indices))[0]
        self._order = np.lexsort((indices, keys))
        self._indices = indices[self._order]
        self.keys = keys[self._order]
        self.better = np.zeros(len(indices), np.int64)

    def add_database(self, row: Keys, start: int) -> None:
        """Count the images of the database chunk that begins at ``start``; changes ``row``."""
        position = self._indices - start
        later = position >= len(row)
        inside = (position >= 0) & ~later
        # Chosen images are ordered among themselves by their own keys. They do not count here,
        # so that no rank depends on this product giving them the same last bit.
        row[position[inside]] = np.inf
        ordered = np.sort(row)
        above = np.searchsorted(ordered, self.keys, side="left")
        above_or_equal = np.searchsorted(ordered, self.keys, side="right")
        self.better += np.where(later, above_or_equal, above)
        for i in np.flatnonzero(inside & (above_or_equal > above)):
            self.better[i] += np.count_nonzero(row[: position[i]] == self.keys[i])

    def ranks(self) -> Indices:
        """Ranks in the order in which the images were given."""
        ranks = np.empty_like(self.better)
        ranks[self._order] = self.better + np.arange(len(self.better))
        return ranks


def _scored(
    queries: Rows, counters: list[_Counter], block: Rows, name: str, start: int
) -> Iterator[tuple[Keys, list[_Counter]]]:
    """Keys (q, n) of a block (n, D), for a group of queries at a time."""
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        group = slice(first, first + _QUERIES_AT_ONCE)
        keys = _keys(queries[group], block)
        if not np.isfinite(keys).all():
            row = int(np.isfinite(keys).all(axis=0).argmin())
            raise ValueError(f"{name} {start + row} is not finite, or overflows")
        yield keys, counters[group]


def _keys(queries: Rows, block: Rows) -> Keys:
    with np.errstate(over="ignore", invalid="ignore"):  # _scored finds and names these
        keys: Keys = (-queries @ block.T).astype(np.float32)
    return keys

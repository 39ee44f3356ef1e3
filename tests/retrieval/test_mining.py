"""Mining against a full sort and a walk down the list."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sl_retrieval import mining
from sl_retrieval.mining import mine_negatives


def walk(
    queries: torch.Tensor,
    query_labels: NDArray[np.int64],
    pool: torch.Tensor,
    pool_labels: NDArray[np.int64],
    count: int,
) -> list[list[int]]:
    """The definition: a stable full sort, then one image after the other."""
    result = []
    for scores, own in zip((queries @ pool.T).numpy(), query_labels, strict=True):
        taken: list[int] = []
        clusters = {int(own)}
        for position in np.argsort(-scores, kind="stable"):
            if len(taken) == count:
                break
            if int(pool_labels[position]) not in clusters:
                taken.append(int(position))
                clusters.add(int(pool_labels[position]))
        result.append(taken)
    return result


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 999),
    pool_size=st.integers(8, 300),
    clusters=st.integers(7, 30),
    count=st.integers(0, 5),
    levels=st.sampled_from([2, 3, 1000]),
)
def test_the_same_negatives_as_a_full_sort(
    seed: int, pool_size: int, clusters: int, count: int, levels: int
) -> None:
    """Few levels give many equal scores; integers make them exactly equal."""
    generator = np.random.default_rng(seed)
    # A skewed distribution: one cluster fills most of the pool.
    labels = generator.integers(0, clusters, pool_size) * generator.integers(0, 2, pool_size)
    labels[:7] = np.arange(7)
    queries = torch.from_numpy(generator.integers(0, levels, (5, 3))).float()
    pool = torch.from_numpy(generator.integers(0, levels, (pool_size, 3))).float()
    own = generator.integers(0, clusters, 5)
    arguments = (queries, own, pool, labels.astype(np.int64), count)
    assert mine_negatives(*arguments).tolist() == walk(*arguments)


def test_blocks_of_queries_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    queries = torch.from_numpy(generator.integers(-9, 9, (20, 4))).float()
    pool = torch.from_numpy(generator.integers(-9, 9, (90, 4))).float()
    labels, own = generator.integers(0, 12, 90), generator.integers(0, 12, 20)
    whole = mine_negatives(queries, own, pool, labels, 5)
    monkeypatch.setattr(mining, "BLOCK_ELEMENTS", 200)
    np.testing.assert_array_equal(mine_negatives(queries, own, pool, labels, 5), whole)


def test_too_few_clusters_are_refused_before_anything_is_computed() -> None:
    labels = np.array([0, 1, 2, 2])
    message = "4 images has 3 clusters, so a query has 2 others; expected at least 3"
    with pytest.raises(ValueError, match=message):
        mine_negatives(torch.ones(1, 2), np.array([1]), torch.ones(4, 2), labels, 3)
    found = mine_negatives(torch.ones(1, 2), np.array([7]), torch.ones(4, 2), labels, 3)
    assert found.tolist() == [[0, 1, 2]]

"""What an epoch draws: pairs of one label, pools without repetition, the same for the same seed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sl_retrieval.data import RetrievalData
from sl_retrieval.tuples import check_draws, draw_epoch, mine_epoch


def data_of(labels: list[int], pairs: list[tuple[int, int]] | None = None) -> RetrievalData:
    return RetrievalData(
        name="some",
        images=tuple(f"{n}.jpg" for n in range(len(labels))),
        labels=np.array(labels, np.int64),
        label_names=tuple(str(n) for n in range(max(labels) + 1)),
        pairs=None if pairs is None else np.array(pairs, np.int64),
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=40), st.integers(0, 9), st.integers(1, 50))
def test_a_positive_is_another_image_of_the_querys_label(
    labels: list[int], seed: int, count: int
) -> None:
    data = data_of(labels)
    draw = draw_epoch(data, count, 10, seed, epoch=3)
    assert (draw.queries != draw.positives).all()
    assert (data.labels[draw.queries] == data.labels[draw.positives]).all()
    possible = sum(labels.count(label) > 1 for label in labels)
    assert len(draw.queries) == min(count, possible)
    assert len(set(draw.queries.tolist())) == len(draw.queries)
    assert len(set(draw.pool.tolist())) == len(draw.pool) == min(10, len(labels))


def test_every_partner_is_drawn_equally_often() -> None:
    data = data_of([0, 0, 0, 0, 1])
    counts = np.zeros((5, 5))
    for epoch in range(3000):
        draw = draw_epoch(data, 4, 5, 0, epoch)
        counts[draw.queries, draw.positives] += 1
    expected = np.zeros((5, 5))
    expected[:4, :4] = 1000 * (1 - np.eye(4))
    assert np.abs(counts - expected).max() < 130


def test_a_draw_depends_on_seed_and_epoch_only() -> None:
    data = data_of([n % 7 for n in range(70)])
    one, same = draw_epoch(data, 20, 30, 1, 5), draw_epoch(data, 20, 30, 1, 5)
    np.testing.assert_array_equal(one.queries, same.queries)
    np.testing.assert_array_equal(one.pool, same.pool)
    for other in (draw_epoch(data, 20, 30, 1, 6), draw_epoch(data, 20, 30, 2, 5)):
        assert (one.queries != other.queries).any()


def test_fixed_pairs_are_taken_as_they_are() -> None:
    data = data_of([0, 0, 1, 1, 2], pairs=[(0, 1), (3, 2), (4, 0)])
    draw = draw_epoch(data, 2, 5, 0, 0)
    drawn = set(zip(draw.queries.tolist(), draw.positives.tolist(), strict=True))
    assert drawn < {(0, 1), (3, 2), (4, 0)}
    assert len(drawn) == 2


def test_negatives_are_the_nearest_of_the_pool_by_the_given_descriptors() -> None:
    data = data_of([0, 0, 1, 1, 2, 2, 3, 3])
    draw = draw_epoch(data, 4, 8, 0, 0)
    descriptors = torch.eye(8)
    # Image 6 is near to everything, image 4 second, image 2 third, image 0 last.
    descriptors[:, 0] = torch.tensor([1.0, 1, 3, 1, 5, 1, 9, 1])
    tuples = mine_epoch(data, draw, 2, lambda indices: descriptors[indices])
    assert tuples.indices.shape == (4, 4)
    for query, positive, first, second in tuples.indices.tolist():
        assert (query, positive) in zip(draw.queries.tolist(), draw.positives.tolist(), strict=True)
        best = [i for i in (6, 4, 2, 0) if data.labels[i] != data.labels[query]]
        assert [first, second] == best[:2]


def test_random_negatives_are_of_other_labels_and_change_with_the_epoch() -> None:
    data = data_of([n % 9 for n in range(90)])
    first, second = (mine_epoch(data, draw_epoch(data, 20, 90, 0, e), 4, None) for e in (0, 1))
    for tuples in (first, second):
        labels = data.labels[tuples.indices]
        assert all(len(set(row[1:].tolist())) == 5 for row in labels)
    assert (first.indices[:, 2:] != second.indices[:, 2:]).any()
    assert len(np.unique(first.indices[:, 2:])) > 30


def test_what_cannot_be_trained_on_is_said_by_name() -> None:
    with pytest.raises(ValueError, match="some: no label has two images"):
        check_draws(data_of([0, 1, 2]), 1, 5, 9, 0, range(3))
    with pytest.raises(
        ValueError, match=r"some, epoch 1: .* has 3 clusters, so a query has 2 others"
    ):
        check_draws(data_of([0, 0, 1, 2]), 3, 5, 9, 0, range(3))
    check_draws(data_of([0, 0, 1, 2]), 2, 5, 9, 0, range(3))


def test_a_pool_that_some_later_epoch_draws_too_poor_is_found_before() -> None:
    data = data_of([n // 10 for n in range(60)])
    check_draws(data, 3, 10, 60, 0, range(50))
    with pytest.raises(ValueError, match=r"some, epoch \d+: .* \(NEGATIVES and POOL_SIZE\)"):
        check_draws(data, 3, 10, 8, 0, range(50))

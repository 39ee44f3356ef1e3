"""mAP and mP@k against a full stable sort, written from the definition, ties included."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sl_retrieval.ground_truth import GroundTruth
from sl_retrieval.ranking import exact_ranks
from sl_retrieval.revisited import (
    Metrics,
    evaluate_classic,
    evaluate_revisited,
    relevance_from_labels,
)

Matrix = NDArray[np.floating]
Entry = dict[str, list[int]]
DEFINITION = {
    "easy": (["easy"], ["junk", "hard"]),
    "medium": (["easy", "hard"], ["junk"]),
    "hard": (["hard"], ["junk", "easy"]),
}


def by_sorting(scores: NDArray[np.float32], positive: set[int], ignored: set[int]) -> list[float]:
    """AP, P@1, P@5, P@10 of one query, walking down the fully sorted list."""
    if not positive:
        return [math.nan] * 4
    ranking = [i for i in np.argsort(-scores, kind="stable").tolist() if i not in ignored]
    ap, found, ranks = 0.0, 0, []
    for rank, image in enumerate(ranking):
        if image in positive:
            before = found / rank if rank else 1.0
            found += 1
            ap += (before + found / (rank + 1)) / 2 / len(positive)
            ranks.append(rank + 1)
    cutoffs = [min(max(ranks), k) for k in (1, 5, 10)]
    return [ap, *(sum(rank <= k for rank in ranks) / k for k in cutoffs)]


def expected_values(
    queries: Matrix, images: Matrix, gnd: list[Entry], positive: list[str], ignored: list[str]
) -> NDArray[np.float64]:
    """(4, Q): AP, P@1, P@5, P@10."""
    scores = (queries.astype(np.float64) @ images.astype(np.float64).T).astype(np.float32)
    rows = [
        by_sorting(
            row, {i for k in positive for i in entry[k]}, {i for k in ignored for i in entry[k]}
        )
        for row, entry in zip(scores, gnd, strict=True)
    ]
    return np.array(rows).reshape(-1, 4).T


def per_query(metrics: Metrics) -> NDArray[np.float64]:
    return np.array([metrics["per_query"][name] for name in ("ap", "p@1", "p@5", "p@10")])


def means(metrics: Metrics) -> list[float]:
    return [metrics["map"], metrics["mp@1"], metrics["mp@5"], metrics["mp@10"]]


class Case:
    """Random descriptors of small integers, so that most scores tie, and a ground truth."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        count, extra, queries = generator.integers((1, 0, 1), (40, 40, 5))
        high = generator.integers(1, 4)
        draw = lambda n: generator.integers(-high, high + 1, (n, 3)).astype(np.float32)  # noqa: E731
        self.queries, self.images, self.extra = draw(queries), draw(count), draw(extra)
        self.gnd: list[Entry] = []
        for _ in range(queries):
            order = generator.permutation(count)
            cuts = np.sort(generator.integers(0, count + 1, 3))
            parts = np.split(order, cuts)[:3]
            self.gnd.append(
                {k: v.tolist() for k, v in zip(("easy", "hard", "junk"), parts, strict=True)}
            )

    def evaluate(self, **options: Any) -> dict[str, Metrics]:
        return evaluate_revisited(self.queries, self.images, self.gnd, **options)


SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 50)


@given(SEEDS, SIZES)
def test_every_query_and_protocol_equals_a_full_stable_sort(seed: int, chunk_size: int) -> None:
    case = Case(seed)
    found = case.evaluate(distractors=[case.extra], chunk_size=chunk_size)
    images = np.concatenate([case.images, case.extra])
    for protocol, (positive, ignored) in DEFINITION.items():
        expected = expected_values(case.queries, images, case.gnd, positive, ignored)
        np.testing.assert_allclose(per_query(found[protocol]), expected, rtol=1e-12)
        counted = expected[:, ~np.isnan(expected[0])]
        mean = counted.mean(axis=1) if counted.size else [math.nan] * 4
        np.testing.assert_allclose(means(found[protocol]), mean, rtol=1e-12)


@given(SEEDS, st.lists(st.integers(0, 40), max_size=6), SIZES, SIZES)
def test_no_chunking_changes_any_bit(seed: int, cuts: list[int], one: int, other: int) -> None:
    case = Case(seed)
    chunks = np.split(case.extra, sorted(min(cut, len(case.extra)) for cut in cuts))
    whole = case.evaluate(distractors=[case.extra], chunk_size=one)
    np.testing.assert_equal(case.evaluate(distractors=iter(chunks), chunk_size=other), whole)


@given(SEEDS, st.integers(-9, 9))
def test_junk_may_be_moved_anywhere(seed: int, factor: int) -> None:
    case = Case(seed)
    before = case.evaluate()
    for query, entry in enumerate(case.gnd):
        moved = case.images.copy()
        moved[entry["junk"]] = factor * case.queries[query]
        after = evaluate_revisited(case.queries, moved, case.gnd)
        for protocol in DEFINITION:
            found, expected = per_query(after[protocol]), per_query(before[protocol])
            np.testing.assert_array_equal(found[:, query], expected[:, query])


def floats(seed: int, *shape: int) -> NDArray[np.float32]:
    x = np.random.default_rng(seed).normal(size=shape)
    unit: NDArray[np.float32] = (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)
    return unit


def test_copies_of_an_image_tie_wherever_they_are() -> None:
    """In float32, one image scores differently in different places of one matrix product."""
    image = floats(0, 128)
    copies = np.broadcast_to(image, (2500, 128))
    queries, chosen = floats(1, 70, 128), np.array([0, 700, 1777, 2499])
    ranks = exact_ranks(queries, copies, [chosen] * 70, [copies], chunk_size=1000)
    np.testing.assert_array_equal(np.stack(ranks), np.broadcast_to(chosen, (70, 4)))


def test_more_queries_than_are_scored_at_once() -> None:
    queries, images = floats(2, 300, 8), floats(3, 90, 8)
    chosen = [np.array([q % 90, (q + 31) % 90]) for q in range(300)]
    order = np.argsort(-(queries.astype(np.float64) @ images.T.astype(np.float64)), axis=1)
    found = exact_ranks(queries, images, chosen, chunk_size=40)
    for query, ranks in enumerate(found):
        np.testing.assert_array_equal(order[query, ranks], chosen[query])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_torch_tensors_of_every_precision_equal_their_values_in_numpy(dtype: torch.dtype) -> None:
    queries, images, extra = (
        torch.from_numpy(floats(s, n, 16)).to(dtype) for s, n in enumerate((3, 50, 200))
    )
    gnd = [{"ok": list(range(q, 50, 9)), "junk": [q + 1]} for q in range(3)]
    found = evaluate_classic(queries, images, gnd, [extra])
    everything = torch.cat([images, extra]).double().numpy()
    expected = expected_values(queries.double().numpy(), everything, gnd, ["ok"], ["junk"])
    np.testing.assert_allclose(per_query(found), expected, rtol=1e-12)


def test_a_perfect_ranking_gives_one_and_a_distractor_in_front_lowers_it() -> None:
    queries = np.eye(2, dtype=np.float32)
    images = np.array([[3, 0], [2, 0], [0, 3], [1, 0], [0, 2]], np.float32)
    gnd = [{"ok": [0, 1], "junk": []}, {"ok": [2, 4], "junk": [0]}]
    assert means(evaluate_classic(queries, images, gnd)) == [1.0] * 4
    found = evaluate_classic(queries, images, gnd, [np.array([[4, -1]], np.float32)])
    # Ranks 1 and 2: AP = (0/1 + 1/2 + 1/2 + 2/3) / 4; P@5 = 2/3, as the last positive is third.
    assert found["per_query"]["ap"] == pytest.approx([5 / 12, 1.0])
    assert found["per_query"]["p@1"] == [0.0, 1.0]
    assert found["per_query"]["p@5"] == pytest.approx([2 / 3, 1.0])


def test_queries_without_positives_are_nan_and_do_not_count() -> None:
    queries, images = np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)
    gnd = [{"ok": [0], "junk": []}, {"ok": [], "junk": [1]}]
    found = evaluate_classic(queries, images, gnd)
    assert found["map"] == 1.0
    assert np.isnan(per_query(found)[:, 1]).all()
    assert np.isnan(means(evaluate_classic(queries[1:], images, gnd[1:]))).all()
    assert np.isnan(means(evaluate_classic(queries[:0], images, []))).all()


def test_ground_truth_object_its_relevance_and_plain_lists_are_the_same() -> None:
    case = Case(11)
    relevance = tuple({k: np.array(v, np.int64) for k, v in e.items()} for e in case.gnd)
    names = tuple(map(str, range(len(case.images))))
    truth = GroundTruth("toy", names, ("q",) * len(relevance), (None,) * len(relevance), relevance)
    for gnd in (truth, truth.relevance):
        np.testing.assert_equal(evaluate_revisited(case.queries, case.images, gnd), case.evaluate())
    with pytest.raises(ValueError, match="images of toy"):
        evaluate_revisited(case.queries, case.images[1:], truth)


@given(SEEDS)
def test_leave_one_out_by_labels_equals_its_definition(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, 20)
    own = generator.choice(20, 6, replace=False)
    found = relevance_from_labels(labels[own], labels, own)
    names = np.array(["a", "b", "c", "d"])[labels]
    by_name = relevance_from_labels(names[own], names, None)
    for query, entry, other in zip(own, found, by_name, strict=True):
        same = set(np.flatnonzero(labels == labels[query]).tolist())
        assert entry["ok"].tolist() == sorted(same - {int(query)})
        assert entry["junk"].tolist() == [query]
        assert (other["ok"].tolist(), other["junk"].tolist()) == (sorted(same), [])
    x = generator.integers(-2, 3, (20, 3)).astype(np.float32)
    gnd = [{key: indices.tolist() for key, indices in entry.items()} for entry in found]
    expected = expected_values(x[own], x, gnd, ["ok"], ["junk"])
    np.testing.assert_allclose(per_query(evaluate_classic(x[own], x, found)), expected)


def test_labels_that_nothing_has_give_no_positives() -> None:
    (entry,) = relevance_from_labels([7], [1, 9], None)
    assert entry["ok"].size == 0
    with pytest.raises(ValueError, match="length of same is 2, expected 1"):
        relevance_from_labels([7], [1, 9], [0, 1])


GND = [{"ok": [0], "junk": [2]}]
GOOD = np.ones((3, 4), np.float32)
HOLED = np.where(np.arange(12).reshape(3, 4) == 5, np.nan, GOOD)


@pytest.mark.parametrize(
    ("queries", "images", "gnd", "distractors", "message"),
    [
        (GOOD[:1], HOLED, GND, [], "database descriptor 1 is not finite"),
        (HOLED[1:2], GOOD, GND, [], "query descriptor 0 is not finite"),
        (GOOD[:1], GOOD, GND, [GOOD, HOLED * np.inf], "distractor chunk 1, descriptor 0 is not"),
        (GOOD[:1], GOOD * 1e30, GND, [GOOD * 1e38], "distractor chunk 0, descriptor 0"),
        (GOOD[:1], GOOD[:, :3], GND, [], "database descriptors has 3 dimensions, expected 4"),
        (GOOD[:1], GOOD, GND, [GOOD[:, :2]], "distractor chunk 0 has 2 dimensions, expected 4"),
        (GOOD[:1], GOOD, GND, [GOOD[0]], "distractor chunk 0: .*N x D"),
        (GOOD[:1].astype(int), GOOD, GND, [], "query descriptors: .*int64"),
        (GOOD[:2], GOOD, GND, [], "number of queries in the ground truth is 1, expected 2"),
        (GOOD[:1], GOOD[:2], GND, [], "query 0, junk lists image 2, expected 0 to 1"),
        (GOOD[:1], GOOD, [{"ok": [0]}], [], "query 0 has .*expected the keys ok, junk"),
        (GOOD[:1], GOOD, [{"ok": [2], "junk": [2]}], [], "query 0 lists image 2 twice"),
    ],
)
def test_input_that_does_not_fit_is_named(
    queries: Matrix, images: Matrix, gnd: list[Entry], distractors: list[Matrix], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_classic(queries, images, gnd, distractors)


def test_the_chunk_size_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="chunk_size is 0, expected at least 1"):
        evaluate_classic(GOOD[:1], GOOD, GND, chunk_size=0)

"""Equations 6, 8 and 14 of bspml.txt: gradient, unbiased estimate, projection, age, balance."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sl_retrieval.self_paced_weights import (
    Draws,
    Floats,
    WeightProblem,
    age_at,
    draw_steps,
    mean_and_spread,
)

LABELS = np.array([0, 1, 0, 2, 1, 0, 2])


def problem(labels: Any = LABELS, seed: int = 0, **changes: float) -> WeightProblem:
    generator = np.random.default_rng(seed)
    losses = generator.uniform(0.2, 1.5, (2, len(labels)))
    options = {"age": 1.3, "balance": 0.7} | changes
    return WeightProblem(np.asarray(labels), losses[0], losses[1], **options)


def random_weights(count: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).uniform(0, 1, count)


def brute_objective(p: WeightProblem, w: torch.Tensor) -> torch.Tensor:
    """Equation 6 by loops, with the 1 / N_c of equation 3."""
    members = [np.flatnonzero(p.labels == c) for c in range(p.labels.max() + 1)]
    count = len(members)
    mean = [w[m].mean() for m in members]
    total = w.sum() * 0
    for c, own in enumerate(members):
        for a in own:
            others = sum(w[i] for i in own if i != a) / max(len(own) - 1, 1)
            away = sum(mean[k] for k in range(count) if k != c) / (count - 1)
            cost = others * p.positive_losses[a] + away * p.negative_losses[a]
            total = total + w[a] * cost / len(own)
        total = total - p.age * mean[c]
    for c, k in itertools.combinations(range(count), 2):
        total = total + p.balance / (count - 1) * (mean[c] - mean[k]) ** 2
    return total


@pytest.mark.parametrize("labels", [LABELS, [0, 1, 1, 1, 2, 2]])
def test_objective_and_gradient_are_those_of_equation_6(labels: Any) -> None:
    p, w = problem(labels), random_weights(len(labels))
    variable = torch.tensor(w, requires_grad=True)
    value = brute_objective(p, variable)
    (expected,) = torch.autograd.grad(value, variable)
    assert p.objective(w) == pytest.approx(value.item())
    np.testing.assert_allclose(p.gradient(w), expected.numpy(), rtol=1e-12)


def subsets(label: int, size: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(np.flatnonzero(label == LABELS), size))


@pytest.mark.parametrize(("classes", "per_class"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_the_exact_expectation_of_the_estimate_is_the_gradient(
    classes: int, per_class: int
) -> None:
    """Over every choice of different partners, at weights that are not special."""
    p, w = problem(), random_weights(len(LABELS))
    for anchor in range(len(LABELS)):
        own = LABELS[anchor]
        mates = [i for i in np.flatnonzero(own == LABELS) if i != anchor]
        size = min(per_class, len(mates))
        # A mate that is the only one comes again.
        positives = [(c * per_class)[:per_class] for c in itertools.combinations(mates, size)]
        expected, total = 0.0, 0
        others = [c for c in range(3) if c != own]
        for chosen in itertools.combinations(others, classes):
            negatives = list(itertools.product(*(subsets(c, per_class) for c in chosen)))
            both = list(itertools.product(positives, negatives))
            draws = Draws(
                np.full(len(both), anchor),
                np.array([positive for positive, _ in both]),
                np.array([negative for _, negative in both]),
            )
            # Every choice of classes is as likely, however many samples they have.
            expected += float(p.estimates(w, draws).mean())
            total += 1
        assert expected / total == pytest.approx(p.gradient(w)[anchor], rel=1e-10)


def test_the_drawn_estimates_have_the_gradient_as_mean() -> None:
    labels = np.repeat(np.arange(5), [1, 3, 4, 6, 9])
    p, w = problem(labels), random_weights(len(labels))
    generator = np.random.default_rng(5)
    parts = []
    for _ in range(3000):
        draws = draw_steps(labels, 20, 3, 4, generator)
        parts.append((draws.anchors, p.estimates(w, draws)))
    anchors, estimates = (np.concatenate(column) for column in zip(*parts, strict=True))
    for anchor, expected in enumerate(p.gradient(w)):
        found = estimates[anchors == anchor]
        error = found.std() / np.sqrt(len(found) / 4)  # steps of one draw share an order
        assert abs(found.mean() - expected) < 4 * error + 1e-12


def test_draws_are_uniform_and_never_the_anchor_nor_its_class() -> None:
    labels = np.repeat(np.arange(4), [2, 3, 5, 6])
    generator = np.random.default_rng(0)
    chosen = np.zeros((len(labels), len(labels)))
    for _ in range(4000):
        draws = draw_steps(labels, 16, 2, 2, generator)
        assert (labels[draws.positives] == labels[draws.anchors][:, None]).all()
        assert (draws.positives != draws.anchors[:, None]).all()
        assert (labels[draws.negatives] != labels[draws.anchors][:, None, None]).all()
        in_one_class = labels[draws.negatives]
        assert (in_one_class[..., 0] == in_one_class[..., 1]).all()
        assert (in_one_class[:, 0, 0] != in_one_class[:, 1, 0]).all()
        assert (draws.negatives[..., 0] != draws.negatives[..., 1]).all()
        larger = labels[draws.anchors] > 0
        assert (draws.positives[larger, 0] != draws.positives[larger, 1]).all()
        np.add.at(chosen, (draws.anchors[:, None], draws.positives), 1)
        np.add.at(chosen, (draws.anchors[:, None, None], draws.negatives), 1)
    for anchor, row in enumerate(chosen / chosen.sum(1, keepdims=True)):
        for c in range(4):
            members = (labels == c) & (np.arange(len(labels)) != anchor)
            share = 2 / 6 if c == labels[anchor] else 4 / 6 / 3
            np.testing.assert_allclose(row[members], share / members.sum(), rtol=0.15)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    age=st.floats(-100, 100),
    balance=st.floats(0, 1e4),
    rate=st.floats(1e-3, 1e4),
)
def test_steps_keep_the_weights_in_the_unit_cube(
    seed: int, age: float, balance: float, rate: float
) -> None:
    p = problem(seed=seed, age=age, balance=balance)
    draws = draw_steps(LABELS, 50, 2, 2, np.random.default_rng(seed))
    w = p.take_steps(random_weights(len(LABELS), seed), draws, rate)
    assert ((w >= 0) & (w <= 1)).all()


def test_each_step_is_the_projected_estimate_at_the_weights_of_that_moment() -> None:
    p, w = problem(), random_weights(len(LABELS))
    draws = draw_steps(LABELS, 30, 2, 2, np.random.default_rng(3))
    expected = w.copy()
    for step in range(30):
        one = Draws(*(column[step : step + 1] for column in draws))
        anchor = draws.anchors[step]
        moved = expected[anchor] - 0.4 * p.estimates(expected, one)[0]
        expected[anchor] = np.clip(moved, 0, 1)
    np.testing.assert_allclose(p.take_steps(w, draws, 0.4), expected, rtol=1e-12)


def solved(passes: int = 60, **changes: float) -> tuple[float, float]:
    """MAW and SDAW where some classes are much harder than others, as after wrong labels."""
    labels = np.repeat(np.arange(12), 10)
    generator = np.random.default_rng(0)
    hardness = np.repeat(generator.uniform(0.3, 1.5, 12), 10)
    positive = hardness * generator.uniform(0.7, 1.3, 120)
    options = {"age": 1.2, "balance": 0.0} | changes
    p = WeightProblem(labels, positive, 0.2 * positive, **options)
    w = np.ones(120)
    for _ in range(passes):
        w = p.take_steps(w, draw_steps(labels, 120, 6, 4, generator), 2.0)
    return mean_and_spread(w, labels)


def test_a_larger_balance_lowers_the_spread_between_classes() -> None:
    spreads = [solved(balance=mu)[1] for mu in (0.0, 1.0, 10.0, 100.0)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] > 0.2
    assert spreads[-1] < 0.05


def test_a_larger_age_raises_the_mean_weight() -> None:
    means = [solved(age=age)[0] for age in (0.0, 0.5, 1.0, 2.0, 6.0)]
    assert means == sorted(means)
    assert means[0] < 0.05
    assert means[-1] == 1


def test_descent_lowers_the_objective() -> None:
    p, w = problem(age=1.0), np.ones(len(LABELS))
    generator = np.random.default_rng(0)
    after = w
    for _ in range(50):
        after = p.take_steps(after, draw_steps(LABELS, 7, 2, 2, generator), 0.1)
    assert p.objective(after) < p.objective(w)


def test_a_large_balance_does_not_overshoot() -> None:
    """Without losses and age the estimate is exact, so every step must go down."""
    p = WeightProblem(LABELS, np.zeros(7), np.zeros(7), age=0.0, balance=1e4)
    w = random_weights(len(LABELS))
    generator = np.random.default_rng(0)
    for _ in range(30):
        after = p.take_steps(w, draw_steps(LABELS, 1, 2, 2, generator), 100.0)
        assert p.objective(after) <= p.objective(w) + 1e-9
        w = after


def test_mean_and_spread_are_equation_14() -> None:
    weights = np.array([1.0, 0.5, 0.0, 0.2, 0.5, 0.5, 0.4])
    means = np.array([0.5, 0.5, 0.3])
    maw, sdaw = mean_and_spread(weights, LABELS)
    assert maw == pytest.approx(means.mean())
    assert sdaw == pytest.approx(np.sqrt(((means - means.mean()) ** 2).mean()))


def test_the_age_grows_up_to_its_limit() -> None:
    assert [age_at(t, 1.0, 2.0, 5.0) for t in range(4)] == [1, 2, 4, 5]


def test_bad_input_is_named() -> None:
    for labels, message in (([0, 0], "number of classes is 1"), ([0, 2], "without samples")):
        with pytest.raises(ValueError, match=message):
            problem(labels)
    with pytest.raises(ValueError, match="balance is -1"):
        problem(balance=-1.0)
    with pytest.raises(ValueError, match="positive_losses is 'nan or inf'"):
        WeightProblem(LABELS, np.full(7, np.nan), np.ones(7), 1.0, 1.0)

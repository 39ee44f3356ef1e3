"""Per-pair losses against loops over tuples, and their robust versions against the plain ones."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sl_core import SuperLoss
from sl_retrieval.criterion import PROBABILITY_LOSSES, RobustCriterion
from sl_retrieval.pair_losses import contrastive_losses, triplet_losses


def some_tuples(count: int, negatives: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, count * (negatives + 2), generator=generator, dtype=torch.float64)
    label = torch.tensor([-1.0, 1.0] + [0.0] * negatives).repeat(count)
    return x / x.norm(dim=0), label


def thresholds(criterion: RobustCriterion) -> Tensor:
    assert isinstance(criterion.robust, SuperLoss)
    return criterion.robust.tau


def loop_contrastive(x: Tensor, label: Tensor, margin: float) -> Tensor:
    """cirtorch's definition, one pair after the other."""
    total = x.new_zeros(())
    query = x[:, 0]
    for column, kind in zip(x.T, label.tolist(), strict=True):
        if kind == -1:
            query = column
            continue
        distance = ((query - column + 1e-6) ** 2).sum().sqrt()
        if kind == 1:
            total = total + 0.5 * distance**2
        else:
            total = total + 0.5 * torch.relu(margin - distance) ** 2
    return total


def loop_triplet(x: Tensor, label: Tensor, margin: float) -> Tensor:
    total = x.new_zeros(())
    columns = list(zip(x.T, label.tolist(), strict=True))
    for position, (query, kind) in enumerate(columns):
        if kind != -1:
            continue
        positive = columns[position + 1][0]
        for negative, other in columns[position + 2 :]:
            if other == -1:
                break
            near, far = ((query - positive) ** 2).sum(), ((query - negative) ** 2).sum()
            total = total + torch.relu(near - far + margin)
    return total


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(0, 6), st.floats(0.1, 2), st.integers(0, 99))
def test_pairs_sum_to_cirtorchs_contrastive_loss(
    count: int, negatives: int, margin: float, seed: int
) -> None:
    x, label = some_tuples(count, negatives, seed)
    losses, is_positive = contrastive_losses(x, label, margin)
    assert losses.shape == (count * (negatives + 1),)
    assert int(is_positive.sum()) == count
    torch.testing.assert_close(losses.sum(), loop_contrastive(x, label, margin))
    assert losses[is_positive].max() <= 2 + 1e-4
    assert not len(losses[~is_positive]) or losses[~is_positive].max() <= margin**2 / 2


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(1, 6), st.floats(0.0, 2), st.integers(0, 99))
def test_triplets_sum_to_cirtorchs_triplet_loss(
    count: int, negatives: int, margin: float, seed: int
) -> None:
    x, label = some_tuples(count, negatives, seed)
    losses = triplet_losses(x, label, margin)
    assert losses.shape == (count * negatives,)
    torch.testing.assert_close(losses.sum(), loop_triplet(x, label, margin))


@pytest.mark.parametrize("loss", ["contrastive", "triplet"])
@pytest.mark.parametrize("name", ["none", "superloss", "cce"])
def test_the_limit_of_every_criterion_has_cirtorchs_gradient(loss: str, name: str) -> None:
    x, label = some_tuples(4, 3)
    x = x.float()
    # A margin at which every pair is active, but far from the distance itself.
    options: dict[str, Any] = {"lam": 1e9, "tau": 0.1} if name == "superloss" else {}
    criterion = RobustCriterion(loss, 1.9, name, **options)
    reference = loop_contrastive if loss == "contrastive" else loop_triplet
    expected = torch.autograd.functional.jacobian(lambda v: reference(v, label, 1.9), x)
    found = torch.autograd.functional.jacobian(lambda v: criterion(v, label), x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_without_a_robust_loss_and_outside_training_the_value_is_cirtorchs() -> None:
    x, label = some_tuples(3, 4)
    expected = loop_contrastive(x, label, 0.7).float()
    torch.testing.assert_close(RobustCriterion(name="none")(x, label), expected)
    trained = RobustCriterion(name="superloss", tau="expavg", lam=0.05)
    trained(x, label)
    tau = thresholds(trained).clone()
    with torch.no_grad():
        torch.testing.assert_close(trained(x, label), expected)
    torch.testing.assert_close(trained.eval()(x, label), expected)
    torch.testing.assert_close(thresholds(trained), tau)


def test_positive_and_negative_pairs_have_their_own_threshold() -> None:
    x, label = some_tuples(6, 3)
    losses, is_positive = contrastive_losses(x.float(), label, 1.9)
    criterion = RobustCriterion(margin=1.9, tau="avg", lam=0.05)
    criterion(x, label)
    active = losses > 0
    expected = torch.stack(
        [losses[is_positive & active].mean(), losses[~is_positive & active].mean()]
    )
    torch.testing.assert_close(thresholds(criterion), expected)
    shared = RobustCriterion(margin=1.9, tau="avg", lam=0.05, separate=False)
    shared(x, label)
    torch.testing.assert_close(thresholds(shared), losses[active].mean()[None])


@pytest.mark.parametrize("name", ["none", "superloss", "gce"])
def test_negative_pairs_can_be_left_as_they_are(name: str) -> None:
    x, label = some_tuples(6, 3)
    x = x.float()
    losses, is_positive = contrastive_losses(x, label, 1.9)
    options: dict[str, Any] = {"tau": "avg", "lam": 0.05} if name == "superloss" else {}
    criterion = RobustCriterion(margin=1.9, name=name, pairs="positive", **options)
    value = criterion(x, label)
    assert criterion.confidence is not None
    assert (criterion.confidence[~is_positive] == (losses[~is_positive] > 0)).all()
    robust = RobustCriterion(margin=1.9, name=name, separate=False, **options).robust
    expected = robust(losses[is_positive], None, None) + losses[~is_positive].sum()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(criterion.confidence[is_positive], robust.confidence)


def test_negatives_beyond_the_margin_do_not_enter_the_threshold() -> None:
    x = torch.eye(4)[:, [0, 1, 2, 3]]
    label = torch.tensor([-1.0, 1.0, 0.0, 0.0])
    criterion = RobustCriterion(margin=0.5, tau="avg", lam=0.05)
    criterion(x, label)
    assert isinstance(criterion.robust, SuperLoss)
    assert criterion.robust.count.tolist() == [1, 0]
    assert criterion.confidence is not None
    assert criterion.confidence[1:].tolist() == [0, 0]


def test_hard_pairs_weigh_less_than_easy_ones_of_their_kind() -> None:
    x, label = some_tuples(20, 2)
    criterion = RobustCriterion(margin=1.9, tau="avg", lam=0.05)
    criterion(x, label)
    losses, is_positive = contrastive_losses(x.float(), label, 1.9)
    assert isinstance(criterion.confidence, Tensor)
    for kind in (is_positive, ~is_positive):
        order = losses[kind].argsort()
        weights = criterion.confidence[kind][order]
        assert bool((weights.diff() <= 0).all())
        assert weights[0] > 1 > weights[-1]


@pytest.mark.parametrize("name", PROBABILITY_LOSSES)
def test_weights_of_probability_losses_follow_their_formula(name: str) -> None:
    x, label = some_tuples(5, 3)
    x.requires_grad_()
    criterion = RobustCriterion(margin=1.9, name=name)
    criterion(x, label).backward()
    losses, _ = contrastive_losses(x.float(), label, 1.9)
    probability = torch.exp(-losses.detach())
    q, k = 0.7, 0.5
    expected = {
        "cce": torch.ones_like(probability),
        "mae": 2 * probability,
        "gce": probability**q,
        "gce_trunc": torch.where(probability > k, probability**q, 0.0),
    }[name].masked_fill(losses == 0, 0)
    assert criterion.confidence is not None
    torch.testing.assert_close(criterion.confidence, expected, rtol=1e-4, atol=1e-5)
    found = x.grad
    (wanted,) = torch.autograd.grad((losses * expected).sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_equal_descriptors_give_finite_gradients() -> None:
    x = torch.ones(4, 4).div(2).requires_grad_()
    label = torch.tensor([-1.0, 1.0, 0.0, 0.0])
    RobustCriterion(tau="expavg", lam=0.05)(x, label).backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


def test_half_descriptors_are_compared_in_float32() -> None:
    x, label = some_tuples(3, 2)
    value = RobustCriterion(name="none")(x.half(), label)
    assert value.dtype == torch.float32
    expected = loop_contrastive(x.half().double(), label, 0.7)
    torch.testing.assert_close(value, expected.float())


def test_bad_layouts_and_names_are_refused_by_name() -> None:
    x, label = some_tuples(2, 3)
    with pytest.raises(ValueError, match="expected tuples of equal length"):
        contrastive_losses(x[:, 1:], label[1:])
    with pytest.raises(ValueError, match="0 queries among 10"):
        contrastive_losses(x, label.abs())
    with pytest.raises(ValueError, match=r"\(8, 10\) and \(9,\)"):
        contrastive_losses(x, label[:-1])
    with pytest.raises(ValueError, match="exactly one positive"):
        triplet_losses(x, torch.tensor([-1.0, 0, 0, 0, 0] * 2))
    with pytest.raises(ValueError, match="'gr', expected one of none, superloss"):
        RobustCriterion(name="gr")
    with pytest.raises(ValueError, match="'quadruplet', expected one of contrastive, triplet"):
        RobustCriterion("quadruplet")


def test_the_state_of_the_criterion_is_that_of_superloss() -> None:
    x, label = some_tuples(6, 3)
    criterion = RobustCriterion(tau="avg", lam=0.05)
    criterion(x, label)
    other = RobustCriterion(tau="avg", lam=0.05)
    other.load_state_dict(criterion.state_dict())
    torch.testing.assert_close(other(x, label), criterion(x, label))
    assert math.isfinite(float(thresholds(other)[0]))


@pytest.mark.parametrize("loss", ["contrastive", "triplet"])
def test_no_tuples_give_a_zero_with_a_graph_and_leave_the_thresholds_alone(loss: str) -> None:
    criterion = RobustCriterion(loss, tau="avg", lam=0.05)
    criterion(*some_tuples(3, 2))
    before = thresholds(criterion).clone()
    x = torch.zeros(8, 0, requires_grad=True)
    total = criterion(x, torch.zeros(0))
    total.backward()
    assert total.item() == 0
    torch.testing.assert_close(thresholds(criterion), before)

"""The confidence-aware losses: the limits and optima that the supplementary states."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sl_core import data_params_loss, introspection_loss, multitask_loss, reliability_loss


@given(st.floats(0, 1), st.sampled_from([-1.0, 1.0]), st.floats(1e-3, 100))
def test_introspection_is_equation_1(similarity: float, label: float, sigma: float) -> None:
    arguments = (torch.tensor(x, dtype=torch.float64) for x in (similarity, label, sigma))
    expected = math.log(math.expm1(sigma) / sigma) - sigma * label * similarity
    assert introspection_loss(*arguments).item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_introspection_limits() -> None:
    """No loss without confidence; no overflow with a lot; its gradient grows with it."""
    similarity = torch.tensor([0.2, 0.9], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([1.0, -1.0], dtype=torch.float64)
    small, large = (torch.full((2,), x, dtype=torch.float64) for x in (1e-8, 1e4))
    assert introspection_loss(similarity, label, small).abs().max() < 1e-7
    expected = large * (1 - label * similarity) - large.log()
    torch.testing.assert_close(introspection_loss(similarity, label, large), expected)
    (gradient,) = torch.autograd.grad(
        introspection_loss(similarity, label, large).sum(), similarity
    )
    torch.testing.assert_close(gradient, -large * label)


@given(st.floats(0, 1), st.floats(0, 1))
def test_reliability_is_least_at_0_or_1(average_precision: float, sigma: float) -> None:
    ap = torch.tensor(average_precision, dtype=torch.float64)
    inside, at_0, at_1 = (
        reliability_loss(ap, torch.tensor(x, dtype=torch.float64)).item() for x in (sigma, 0.0, 1.0)
    )
    assert inside == pytest.approx(sigma * (1 - average_precision) + (1 - sigma) / 2)
    assert min(at_0, at_1) <= inside + 1e-15
    if abs(average_precision - 0.5) > 1e-9:
        assert (at_0 < at_1) == (average_precision < 0.5)


def test_data_params_becomes_the_0_1_loss() -> None:
    """Equation 4: 0 if the labelled class has the largest logit, else infinite."""
    logits = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0]])
    loss = data_params_loss(logits, torch.tensor([0, 0]), torch.tensor([1e5, 1e5]))
    assert loss[0].item() == 0
    assert loss[1].item() >= 1e5 * 0.999


def test_data_params_at_confidence_1_is_cross_entropy() -> None:
    logits, targets = torch.randn(6, 4), torch.arange(6) % 4
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(data_params_loss(logits, targets, torch.ones(6)), expected)
    regularised = data_params_loss(logits, targets, torch.full((6,), math.e), lam=0.5)
    tempered = data_params_loss(logits, targets, torch.full((6,), math.e))
    torch.testing.assert_close(regularised, tempered + 0.5)


@given(st.floats(1e-3, 1e3), st.floats(-5, 5))
def test_multitask_is_equation_5_and_least_at_the_log_of_the_loss(loss: float, s: float) -> None:
    task = torch.tensor(loss, dtype=torch.float64)
    sigma = math.exp(s / 2)
    value = multitask_loss(task, torch.tensor(s, dtype=torch.float64)).item()
    assert value == pytest.approx(loss / (2 * sigma**2) + math.log(sigma))
    assert multitask_loss(task, task.log()).item() <= value + 1e-12

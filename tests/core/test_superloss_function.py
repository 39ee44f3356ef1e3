"""SuperLoss of single samples against its definition."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sl_core import optimal_confidence, super_loss, super_loss_and_confidence

LOSSES = st.floats(-50, 50)
TAUS = st.floats(-10, 10)
LAMS = st.floats(1e-2, 1e3)


def double(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def golden_section_minimum(function: Callable[[float], float], low: float, high: float) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if function(left) < function(right):
            high = right
        else:
            low = left
    return function((low + high) / 2)


@given(LOSSES, TAUS, LAMS)
def test_is_the_minimum_over_the_confidence(loss: float, tau: float, lam: float) -> None:
    """Over x = log sigma <= 1, the branch that starts at sigma = 1 (supplementary, 2.1).

    There exp(x)(l - tau) + lam x^2 has one minimum: inside if beta > -2/e, else at x = 1.
    """

    def objective(x: float) -> float:
        return math.exp(x) * (loss - tau) + lam * x * x

    expected = golden_section_minimum(objective, -50.0, 1.0)
    scale = max(abs(loss - tau), lam)
    assert super_loss(double(loss), tau, lam).item() == pytest.approx(expected, abs=1e-9 * scale)


@given(LOSSES, TAUS, LAMS)
def test_value_is_its_definition_at_the_confidence(loss: float, tau: float, lam: float) -> None:
    value, confidence = (t.item() for t in super_loss_and_confidence(double(loss), tau, lam))
    expected = confidence * (loss - tau) + lam * math.log(confidence) ** 2
    assert value == pytest.approx(expected, abs=1e-12 * max(abs(loss - tau), lam) * math.e)


def test_gradient_is_the_confidence_capped_part_included() -> None:
    loss = torch.linspace(-3, 5, 41, dtype=torch.float64, requires_grad=True)
    tau, lam = 1.0, 0.5
    capped = (loss < tau - 2 * lam / math.e).sum()
    assert 5 < capped < 30
    assert torch.autograd.gradcheck(lambda x: super_loss(x, tau, lam), loss)
    (gradient,) = torch.autograd.grad(super_loss(loss, tau, lam).sum(), loss)
    torch.testing.assert_close(gradient, optimal_confidence(loss, tau, lam))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lam", [1e9, math.inf])
def test_large_lam_is_the_plain_loss_minus_tau(lam: float, dtype: torch.dtype) -> None:
    loss = torch.linspace(-5, 20, 101, dtype=dtype, requires_grad=True)
    value = super_loss(loss, 1.5, lam)
    (gradient,) = torch.autograd.grad(value.sum(), loss)
    torch.testing.assert_close(value, loss - 1.5, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, torch.ones_like(loss), rtol=0, atol=1e-7)


@given(LOSSES, TAUS, LAMS, st.floats(1e-3, 1e3))
def test_homogeneity(loss: float, tau: float, lam: float, factor: float) -> None:
    scaled = super_loss(double(factor * loss), factor * tau, factor * lam).item()
    expected = factor * super_loss(double(loss), tau, lam).item()
    assert scaled == pytest.approx(expected, abs=1e-12 * factor * max(abs(loss - tau), lam))


@given(TAUS, LAMS, st.lists(LOSSES, min_size=2, max_size=30))
def test_confidence_falls_with_the_loss_from_e_towards_0(
    tau: float, lam: float, losses: list[float]
) -> None:
    confidence = optimal_confidence(torch.tensor(losses).double().sort().values, tau, lam)
    assert (confidence.diff() <= 1e-12).all()
    assert confidence.min() > 0
    assert confidence.max() <= math.e * (1 + 1e-15)
    assert optimal_confidence(double(tau), tau, lam).item() == 1


def test_tau_and_lam_broadcast_and_get_no_gradient() -> None:
    loss = torch.rand(4, 3, dtype=torch.float64)
    tau = torch.rand(3, dtype=torch.float64, requires_grad=True)
    lam = torch.rand(4, 1, dtype=torch.float64) + 0.1
    value = super_loss(loss.requires_grad_(), tau, lam)
    for row in range(4):
        for column in range(3):
            single = super_loss(loss[row, column], tau[column].item(), lam[row].item())
            torch.testing.assert_close(value[row, column], single)
    value.sum().backward()
    assert tau.grad is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_losses_show_in_the_value(bad: float) -> None:
    value = super_loss(torch.tensor([1.0, bad]), 0.5, 1.0)
    assert value[0].isfinite()
    assert not value[1].isfinite()


def test_confidence_of_an_infinite_loss_is_as_good_as_0() -> None:
    assert optimal_confidence(torch.tensor(math.inf), 0.0, 1.0) < 1e-36


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_formats_are_computed_in_float32(dtype: torch.dtype) -> None:
    loss = torch.linspace(-2, 6, 100, dtype=dtype, requires_grad=True)
    value, confidence = super_loss_and_confidence(loss, 1.0, 0.25)
    wide, wide_confidence = super_loss_and_confidence(loss.detach().float(), 1.0, 0.25)
    assert value.dtype == dtype
    torch.testing.assert_close(value, wide.to(dtype), rtol=0, atol=0)
    torch.testing.assert_close(confidence, wide_confidence, rtol=0, atol=0)
    value.sum().backward()
    assert loss.grad is not None
    torch.testing.assert_close(loss.grad, wide_confidence.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("lam", [0.0, -1.0, math.nan])
def test_lam_must_be_positive(lam: float) -> None:
    with pytest.raises(ValueError, match=r"lam is .*expected a number above 0"):
        super_loss(torch.zeros(1), 0.0, lam)


def test_integer_losses_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a floating-point tensor"):
        super_loss(torch.zeros(1, dtype=torch.long), 0.0, 1.0)


def test_second_derivative_capped_part_included() -> None:
    loss = torch.linspace(-3, 5, 41, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: super_loss(x, 1.0, 0.5), loss)


def test_works_with_torch_func() -> None:
    loss = torch.rand(5, dtype=torch.float64)
    gradient = torch.func.grad(lambda x: super_loss(x, 0.5, 0.3).sum())(loss)
    torch.testing.assert_close(gradient, optimal_confidence(loss, 0.5, 0.3))

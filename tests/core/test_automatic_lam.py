"""An automatic lam follows the scale of the losses, group by group."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sl_core import SuperLoss


def test_automatic_lam_is_the_mean_absolute_deviation() -> None:
    module = SuperLoss("avg", lam="auto", lam_scale=2.0)
    module(torch.tensor([1.0, 2.0, 6.0]).repeat(4))
    assert module.effective_lam().item() == pytest.approx(2.0 * (2 + 1 + 3) / 3)
    fixed = SuperLoss(1.0, lam="auto", momentum=0.5)
    for value in (2.0, 4.0, 4.0):
        fixed(torch.full((10,), value))
    assert fixed.effective_lam().item() == pytest.approx(0.5 * (0.5 * 1 + 0.5 * 3) + 0.5 * 3)


@given(st.floats(1e-3, 1e3))
def test_automatic_lam_makes_the_confidence_free_of_scale(factor: float) -> None:
    small, large = (SuperLoss("expavg", lam="auto") for _ in range(2))
    for loss in 3 * torch.rand(5, 12, generator=torch.Generator().manual_seed(0)):
        small(loss)
        large(loss * factor)
        torch.testing.assert_close(small.confidence, large.confidence, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 600), st.floats(2**-10, 2**10, width=32))
def test_automatic_lam_of_equal_losses_gives_weight_1(count: int, value: float) -> None:
    module = SuperLoss("expavg", lam="auto")
    for _ in range(3):
        module(torch.full((count,), value))
        assert module.confidence is not None
        torch.testing.assert_close(module.confidence, torch.ones(count), rtol=0, atol=2e-3)


def test_automatic_lam_waits_for_a_few_samples_and_starts_as_their_plain_mean() -> None:
    """Classes are rare in detection: groups start with one sample in a batch."""
    module = SuperLoss("expavg", lam="auto")
    tau, deviations = 1.0, []
    values = [1.0, 1.1, 0.9, 1.2, 0.8, 1.0, 1.1, 0.9, 1.1, 1.05]
    for number, value in enumerate(values, start=1):
        module(torch.tensor([value]))
        tau = 0.9 * tau + 0.1 * value
        deviations.append(abs(value - tau))
        assert module.confidence is not None
        assert (module.confidence.item() == 1) == (number < 10)
    assert module.effective_lam().item() == pytest.approx(sum(deviations) / 10, rel=1e-4)


def test_automatic_lam_does_not_magnify_rounding() -> None:
    module = SuperLoss("expavg", lam="auto")
    module(torch.tensor([1.0, 1.0 + 2**-23] * 10))
    torch.testing.assert_close(module.confidence, torch.ones(20), rtol=0, atol=1e-3)

"""Emphasis focus and spread against the numbers of the papers."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sl_core import (
    cce_weight,
    emphasis_focus,
    emphasis_spread,
    gce_weight,
    gr_weight,
    imae_weight,
    mae_weight,
)


@pytest.mark.parametrize(
    ("weight", "variance"),
    [(cce_weight, 0.33), (mae_weight, 0.09), (partial(imae_weight, T=8.0), 4.55)],
)
def test_weight_variance_is_that_of_the_paper(weight: partial, variance: float) -> None:
    """imae.txt, sections 1 and 4.1."""
    assert round(emphasis_spread(weight), 2) == variance


def test_spread_of_a_batch_is_its_weight_variance() -> None:
    p = torch.tensor([0.0, 0.5, 1.0])
    assert emphasis_spread(cce_weight, p) == pytest.approx(((2 - 1) ** 2 + (0 - 1) ** 2) / 3)


@given(st.floats(0, 3), st.floats(0.5, 20))
def test_focus_of_gr_is_lam_over_1_plus_lam(lam: float, beta: float) -> None:
    focus = emphasis_focus(partial(gr_weight, beta=beta, lam=lam))
    assert focus == pytest.approx(lam / (1 + lam), abs=1e-5)


@given(st.floats(0, 1))
def test_focus_of_gce_runs_from_0_to_a_half(q: float) -> None:
    assert emphasis_focus(partial(gce_weight, q=q)) == pytest.approx(q / (1 + q), abs=1e-5)


def test_focus_of_cross_entropy_and_mae() -> None:
    assert emphasis_focus(cce_weight) == 0
    assert emphasis_focus(mae_weight) == pytest.approx(0.5, abs=1e-6)


def test_spread_of_gr_falls_when_lam_rises() -> None:
    """gradient_rescaling.txt, figure 1c, at beta = 8."""
    spreads = [emphasis_spread(partial(gr_weight, beta=8.0, lam=lam)) for lam in (0.5, 1, 2, 4)]
    assert spreads == sorted(spreads, reverse=True)

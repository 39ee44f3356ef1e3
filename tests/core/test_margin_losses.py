"""The logits family: values and gradients against the papers' formulas."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor

from sl_core import (
    cce_loss,
    cce_weight,
    gce_loss,
    gce_trunc_loss,
    gce_trunc_weight,
    gce_weight,
    gr_loss,
    gr_weight,
    imae_loss,
    imae_weight,
    mae_loss,
    mae_weight,
)

Loss = Callable[[Tensor, Tensor], Tensor]
FAMILY: dict[str, tuple[Loss, Callable[[Tensor], Tensor]]] = {
    "cce": (cce_loss, cce_weight),
    "mae": (mae_loss, mae_weight),
    "gce": (gce_loss, gce_weight),
    "gce q=0": (partial(gce_loss, q=0.0), partial(gce_weight, q=0.0)),
    "gce q=1": (partial(gce_loss, q=1.0), partial(gce_weight, q=1.0)),
    "gce_trunc": (gce_trunc_loss, gce_trunc_weight),
    "gce_trunc k=0.2": (partial(gce_trunc_loss, k=0.2), partial(gce_trunc_weight, k=0.2)),
    "imae": (imae_loss, imae_weight),
    "imae T=0": (partial(imae_loss, T=0.0), partial(imae_weight, T=0.0)),
    "gr": (gr_loss, gr_weight),
    "gr lam=0": (partial(gr_loss, beta=2.0, lam=0.0), partial(gr_weight, beta=2.0, lam=0.0)),
    "gr lam=2": (partial(gr_loss, beta=20.0, lam=2.0), partial(gr_weight, beta=20.0, lam=2.0)),
}
family = pytest.mark.parametrize(("loss", "weight"), FAMILY.values(), ids=FAMILY.keys())


def random_batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(64, 7, generator=generator, dtype=torch.float64)
    return logits, torch.randint(0, 7, (64,), generator=generator)


def gradient_of(loss: Loss, logits: Tensor, targets: Tensor) -> Tensor:
    logits = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits, targets).sum(), logits)
    return gradient


@family
def test_gradient_is_the_rescaled_cross_entropy_gradient(
    loss: Loss, weight: Callable[[Tensor], Tensor]
) -> None:
    """gradient_rescaling.txt, eq. 6: dL_CCE/dz times w / w_CCE."""
    logits, targets = random_batch()
    probabilities = logits.softmax(-1)
    onehot = F.one_hot(targets, 7)
    p = (probabilities * onehot).sum(-1)
    expected = (probabilities - onehot) * (weight(p) / cce_weight(p)).unsqueeze(-1)
    torch.testing.assert_close(gradient_of(loss, logits, targets), expected)


@family
def test_value_has_that_gradient(loss: Loss, weight: Callable[[Tensor], Tensor]) -> None:
    logits, targets = random_batch()
    assert torch.autograd.gradcheck(lambda z: loss(z, targets[:8]), logits[:8].requires_grad_())


@family
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_at_extreme_logits_is_finite_with_the_stated_length(
    loss: Loss, weight: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    logits = torch.tensor(
        [[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0], [1e4, 1e4, -1e4], [-1e4, -1e4, -1e4]], dtype=dtype
    )
    targets = torch.tensor([0, 0, 0, 2])
    p = torch.tensor([1.0, 0.0, 0.5, 1 / 3], dtype=dtype)
    gradient = gradient_of(loss, logits, targets)
    assert gradient.isfinite().all()
    assert loss(logits, targets).isfinite().all()
    torch.testing.assert_close(gradient.abs().sum(-1), weight(p), rtol=1e-5, atol=1e-6)


def test_closed_forms() -> None:
    logits, targets = random_batch()
    p = logits.softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    cross_entropy = F.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(cce_loss(logits, targets), cross_entropy)
    torch.testing.assert_close(mae_loss(logits, targets), 2 * (1 - p))
    for q in (0.1, 0.7, 1.0):
        torch.testing.assert_close(gce_loss(logits, targets, q), (1 - p**q) / q)
        truncated = (1 - p.clamp(min=0.5) ** q) / q
        torch.testing.assert_close(gce_trunc_loss(logits, targets, q), truncated)


def test_gce_lies_between_cross_entropy_and_half_of_mae() -> None:
    logits, targets = random_batch()
    torch.testing.assert_close(gce_loss(logits, targets, 0.0), cce_loss(logits, targets))
    torch.testing.assert_close(gce_loss(logits, targets, 1e-9), cce_loss(logits, targets))
    torch.testing.assert_close(gce_loss(logits, targets, 1.0), mae_loss(logits, targets) / 2)


@given(st.floats(-12, 12), st.floats(0, 16), st.sampled_from([0.0, 0.3, 0.5, 1.0, 1.5, 2.0]))
def test_gr_value_is_the_integral_of_its_weight(margin: float, beta: float, lam: float) -> None:
    """From p to 1/2, in the margin s, where dt / (t (1 - t)) = ds."""

    def weight(s: float) -> float:
        p = 1 / (1 + math.exp(-s))
        return math.exp(beta * p**lam * (1 - p)) / 2

    expected = quad(weight, margin, 0.0, epsabs=1e-12, limit=200)[0]
    logits = torch.tensor([[margin, 0.0]], dtype=torch.float64)
    for dtype, tolerance in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
        value = gr_loss(logits.to(dtype), torch.tensor([0]), beta, lam).item()
        assert value == pytest.approx(expected, rel=tolerance, abs=tolerance)


def test_losses_take_any_leading_shape_and_empty_batches() -> None:
    logits, targets = random_batch()
    for loss, _ in FAMILY.values():
        folded = loss(logits.reshape(4, 16, 7), targets.reshape(4, 16))
        torch.testing.assert_close(folded.flatten(), loss(logits, targets))
        assert loss(logits[:0], targets[:0]).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_formats_are_computed_in_float32(dtype: torch.dtype) -> None:
    logits, targets = random_batch()
    narrow = logits.to(dtype)
    for loss, _ in FAMILY.values():
        value = loss(narrow, targets)
        assert value.dtype == dtype
        torch.testing.assert_close(value, loss(narrow.float(), targets).to(dtype), rtol=0, atol=0)


def test_bad_arguments_are_named() -> None:
    logits, targets = random_batch()
    with pytest.raises(ValueError, match=r"q is 1.5, expected a number in \[0, 1\]"):
        gce_loss(logits, targets, q=1.5)
    with pytest.raises(ValueError, match=r"k is 0, expected a number in \(0, 1\)"):
        gce_trunc_loss(logits, targets, k=0)
    with pytest.raises(ValueError, match="beta is -1, expected a number at least 0"):
        gr_loss(logits, targets, beta=-1)
    with pytest.raises(ValueError, match=r"expected \(..., C\) with C >= 2 and \(...\)"):
        cce_loss(logits, targets[:3])
    with pytest.raises(ValueError, match=r"logits have shape \(64, 1\)"):
        cce_loss(logits[:, :1], targets)

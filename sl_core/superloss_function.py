"""SuperLoss as a function: value, gradient and confidence of each sample (supplementary, eq. 6-10).

For a per-sample loss l, threshold tau and regularisation lam > 0::

    SL(l) = min over sigma of  sigma (l - tau) + lam (log sigma)^2
    sigma = exp(-W(max(-2/e, beta) / 2)),  beta = (l - tau) / lam,  W = principal Lambert branch

so that sigma is in (0, e]: above 1 for samples easier than tau, below 1 for harder ones. By the
envelope theorem dSL/dl = sigma, also where sigma is capped at e.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sl_core.checks import require
from sl_core.lambert import compute_dtype, exp_minus_lambertw


class _Confidence(torch.autograd.Function):
    """The confidence as a differentiable function of the loss; only second derivatives need it."""

    @staticmethod
    def forward(loss: Tensor, tau: Tensor | float, lam: Tensor | float) -> Tensor:
        return exp_minus_lambertw((loss.to(compute_dtype(loss.dtype)) - tau) / (2 * lam))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.dtype, ctx.lam = inputs[0].dtype, inputs[2]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # From w = -log sigma and dW/dz = sigma / (1 + w); constant where capped, at w = -1.
        (confidence,) = ctx.saved_tensors
        v = 1 - confidence.log()
        slope = torch.where(v > 0, -confidence.square() / (2 * ctx.lam * v), 0)
        return (grad * slope).to(ctx.dtype), None, None


class _SuperLoss(torch.autograd.Function):
    @staticmethod
    def forward(loss: Tensor, tau: Tensor | float, lam: Tensor | float) -> tuple[Tensor, Tensor]:
        excess = loss.to(compute_dtype(loss.dtype)) - tau
        z = excess / (2 * lam)
        confidence = exp_minus_lambertw(z)
        w = z.clamp_(min=-1 / math.e).mul_(confidence)
        # lam (log sigma)^2 = lam w^2 = max(excess, -2 lam / e) sigma w / 2. In this form nothing
        # is lost when lam is large, and lam = inf gives the plain loss minus tau.
        capped = excess.clamp(min=lam * (-2 / math.e))
        value = capped.mul_(w).mul_(0.5).add_(excess).mul_(confidence)
        return value.to(loss.dtype), confidence

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        loss, ctx.tau, ctx.lam = inputs
        _, confidence = output
        ctx.mark_non_differentiable(confidence)
        ctx.save_for_backward(loss, confidence)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        loss, confidence = ctx.saved_tensors
        if torch.is_grad_enabled():
            confidence = _Confidence.apply(loss, ctx.tau, ctx.lam)
        return (grad * confidence).to(loss.dtype), None, None


def super_loss_and_confidence(
    loss: Tensor, tau: Tensor | float, lam: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Per-sample SuperLoss, and the confidence that weighted it (float32 for narrower losses)."""
    _check_arguments(loss, lam)
    value, confidence = _SuperLoss.apply(loss, tau, lam)
    return value, confidence


def super_loss(loss: Tensor, tau: Tensor | float, lam: Tensor | float) -> Tensor:
    """Per-sample SuperLoss; its gradient with respect to ``loss`` is the confidence.

    Limits: lam -> inf gives ``loss - tau`` with gradient 1; for loss - tau <= -2 lam / e the value
    is ``e (loss - tau) + lam``. Homogeneous: super_loss(g l, g tau, g lam) = g super_loss(l, tau,
    lam) for g > 0. A non-finite loss gives a non-finite value.

    Args:
        loss: per-sample losses, any shape and floating dtype; half and bfloat16 are computed in
            float32.
        tau: what separates easy from hard; broadcasts with ``loss``. No gradient flows to it.
        lam: positive; broadcasts with ``loss``. No gradient flows to it.

    Returns:
        The losses, in shape and dtype of ``loss``. May be negative. Differentiable twice.
    """
    return super_loss_and_confidence(loss, tau, lam)[0]


@torch.no_grad()
def optimal_confidence(loss: Tensor, tau: Tensor | float, lam: Tensor | float) -> Tensor:
    """The confidence sigma in (0, e] of each sample: eq. 10 of the supplementary.

    Falls with the loss: e for loss <= tau - 2 lam / e, 1 at loss = tau, towards 0 above.
    Arguments as in ``super_loss``; the result has the shape and dtype of ``loss``.
    """
    _check_arguments(loss, lam)
    excess = loss.to(compute_dtype(loss.dtype)) - tau
    return exp_minus_lambertw(excess / (2 * lam)).to(loss.dtype)


def check_lam(lam: float) -> float:
    """Return ``lam`` as a float, or raise ValueError if it is not a positive number."""
    require(lam > 0, "lam", lam, "a number above 0")
    return float(lam)


def _check_arguments(loss: Tensor, lam: Tensor | float) -> None:
    if not loss.is_floating_point():
        raise ValueError(f"loss has dtype {loss.dtype}, expected a floating-point tensor")
    if not isinstance(lam, Tensor):
        check_lam(lam)

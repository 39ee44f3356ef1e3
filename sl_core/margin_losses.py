"""Classification losses that differ only in the length of their gradient.

Cross-entropy, MAE, GCE, IMAE and GR are all functions of the margin of the labelled class y::

    s = z_y - logsumexp over j != y of z_j,      p = sigmoid(s) = softmax(z)_y
    dL/dz = (v(p) / 2) (softmax over j != y of z - onehot_y),      |dL/dz|_1 = v(p)

with v the sample's weight (imae.txt, table 2; gradient_rescaling.txt, eq. 2-7). Written in s they
are stable for any logits; a rescaled cross-entropy gradient would be 0/0 at p = 1.

Every function takes logits (..., C), C >= 2, and integer targets (...), and returns per-sample
losses (...) in the dtype of the logits; half and bfloat16 are computed in float32.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sl_core.checks import check_options
from sl_core.lambert import compute_dtype


def target_margin(logits: Tensor, targets: Tensor) -> Tensor:
    """``z_y - logsumexp_{j != y} z_j`` of each sample, in float32 or wider."""
    if logits.ndim == 0 or logits.shape[-1] < 2 or targets.shape != logits.shape[:-1]:
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and targets {tuple(targets.shape)}, "
            "expected (..., C) with C >= 2 and (...)"
        )
    logits = logits.to(compute_dtype(logits.dtype))
    # A common shift changes nothing but the rounding, which would be that of the largest logit.
    logits = logits - logits.detach().amax(-1, keepdim=True)
    index = targets.unsqueeze(-1)
    others = logits.scatter(-1, index, -math.inf)
    return logits.gather(-1, index).squeeze(-1) - others.logsumexp(-1)


def cce_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Categorical cross-entropy -log p; weight 2 (1 - p)."""
    return -_log_probability(logits, targets).to(logits.dtype)


def mae_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean absolute error 2 (1 - p), in [0, 2]; weight 4 p (1 - p)."""
    return 2 * torch.sigmoid(-target_margin(logits, targets)).to(logits.dtype)


def gce_loss(logits: Tensor, targets: Tensor, q: float = 0.7) -> Tensor:
    """Generalised cross-entropy (1 - p^q) / q; weight 2 p^q (1 - p).

    q in [0, 1]: q -> 0 is cross-entropy, q = 1 is half of MAE.
    """
    check_options(q=q)
    return _box_cox(_log_probability(logits, targets), q).to(logits.dtype)


def gce_trunc_loss(logits: Tensor, targets: Tensor, q: float = 0.7, k: float = 0.5) -> Tensor:
    """Truncated generalised cross-entropy: constant, so without gradient, where p <= k.

    k in (0, 1); the papers use 0.5. At the start of a training nearly every p is below k.
    """
    check_options(q=q, k=k)
    log_p = _log_probability(logits, targets)
    log_k = torch.full_like(log_p, math.log(k))
    return _box_cox(torch.where(log_p > log_k, log_p, log_k), q).to(logits.dtype)


def gr_loss(logits: Tensor, targets: Tensor, beta: float = 8.0, lam: float = 0.5) -> Tensor:
    """Gradient rescaling: the loss whose weight is exp(beta p^lam (1 - p)).

    The value is the integral of v(t) / (2 t (1 - t)) from t = p to 1/2. To 1, as the papers write
    it, the integral does not exist, since v(1) = 1; so the value is 0 at p = 1/2 and negative
    above. It is found by quadrature, with a relative error below 1e-6 (in float32 below 1e-4) for
    lam = 0 and lam >= 0.2; the gradient is exact.

    beta >= 0 sets how much the weights differ, lam >= 0 which p has the largest: lam / (1 + lam).
    """
    check_options(beta=beta, lam=lam)
    margin = target_margin(logits, targets)
    value: Tensor = _RescaledGradient.apply(margin, beta, lam)
    return value.to(logits.dtype)


def imae_loss(logits: Tensor, targets: Tensor, T: float = 8.0) -> Tensor:
    """Improved MAE: the loss whose weight is exp(T p (1 - p)), that is GR at lam = 1."""
    check_options(T=T)
    return gr_loss(logits, targets, beta=T, lam=1.0)


class _RescaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(margin: Tensor, beta: float, lam: float) -> Tensor:
        return _rescaled_potential(margin, beta, lam)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        margin, ctx.beta, ctx.lam = inputs
        ctx.save_for_backward(margin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (margin,) = ctx.saved_tensors
        # 1 - p as sigmoid(-s), which does not vanish by rounding where p is near 1.
        exponent = ctx.beta * torch.sigmoid(margin) ** ctx.lam * torch.sigmoid(-margin)
        return -0.5 * grad * torch.exp(exponent), None, None


def _rescaled_potential(margin: Tensor, beta: float, lam: float) -> Tensor:
    """``1/2 integral of v ds`` from the margin to 0, with v = exp(beta p^lam (1 - p))."""
    # v has the limit `at_zero` for p -> 0 and 1 for p -> 1. Those parts integrate to multiples
    # of s; what is left is integrable in p and 1 - p and vanishes when margins are huge.
    log_at_zero = beta if lam == 0 else 0.0
    at_zero = math.exp(log_at_zero)
    p = torch.sigmoid(margin).clamp(max=0.5)
    u = torch.sigmoid(-margin).clamp(max=0.5)
    below = _integral_to_half(
        p, lambda t: at_zero * torch.expm1(beta * t**lam * (1 - t) - log_at_zero) / (t * (1 - t))
    )
    above = _integral_to_half(u, lambda t: torch.expm1(beta * (1 - t) ** lam * t) / (t * (1 - t)))
    linear = at_zero * F.relu(-margin) - F.relu(margin)
    return 0.5 * (linear + below - above)


def _integral_to_half(start: Tensor, integrand: Callable[[Tensor], Tensor]) -> Tensor:
    """Integral from ``start`` to 1/2 by the tanh-sinh rule, which allows a singular end."""
    step = 0.125
    t = torch.arange(-32, 33, device=start.device, dtype=start.dtype) * step
    # 1 / (1 + exp(-pi sinh t)) runs from 0 to 1; written as a sigmoid it stays accurate near 0.
    position = torch.sigmoid(math.pi * torch.sinh(t))
    weight = step * math.pi * torch.cosh(t) * position * torch.sigmoid(-math.pi * torch.sinh(t))
    length = 0.5 - start
    tiny = torch.finfo(start.dtype).tiny
    points = (start.unsqueeze(-1) + length.unsqueeze(-1) * position).clamp(min=tiny)
    return (integrand(points) * weight).sum(-1) * length


def _log_probability(logits: Tensor, targets: Tensor) -> Tensor:
    return F.logsigmoid(target_margin(logits, targets))


def _box_cox(log_p: Tensor, q: float) -> Tensor:
    """``(1 - p^q) / q``, and its limit -log p at q = 0."""
    return -log_p if q == 0 else -torch.expm1(q * log_p) / q

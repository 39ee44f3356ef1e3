"""What a classification loss emphasises: its weight as a function of p, and two summaries of it.

A weight function maps the probability p of the labelled class, in [0, 1], to the L1 length of the
gradient with respect to the logits (gradient_rescaling.txt, section 3; imae.txt, section 3).
"""

from collections.abc import Callable

import torch
from torch import Tensor

WeightFunction = Callable[[Tensor], Tensor]


def cce_weight(p: Tensor) -> Tensor:
    """Cross-entropy: 2 (1 - p)."""
    return 2 * (1 - p)


def mae_weight(p: Tensor) -> Tensor:
    """Mean absolute error: 4 p (1 - p)."""
    return 4 * p * (1 - p)


def gce_weight(p: Tensor, q: float = 0.7) -> Tensor:
    """Generalised cross-entropy: 2 p^q (1 - p)."""
    return 2 * p**q * (1 - p)


def gce_trunc_weight(p: Tensor, q: float = 0.7, k: float = 0.5) -> Tensor:
    """Truncated generalised cross-entropy: as gce where p > k, else 0."""
    return gce_weight(p, q) * (p > k)


def imae_weight(p: Tensor, T: float = 8.0) -> Tensor:
    """Improved MAE: exp(T p (1 - p))."""
    return torch.exp(T * p * (1 - p))


def gr_weight(p: Tensor, beta: float = 8.0, lam: float = 0.5) -> Tensor:
    """Gradient rescaling: exp(beta p^lam (1 - p))."""
    return torch.exp(beta * p**lam * (1 - p))


def emphasis_focus(weight: WeightFunction) -> float:
    """Definition 1: the p in [0, 1] with the largest weight (the smallest such p, if several)."""
    low, high = 0.0, 1.0
    for _ in range(4):
        grid = torch.linspace(low, high, 1001, dtype=torch.float64)
        best = int(weight(grid).argmax())
        low, high = grid[max(best - 1, 0)].item(), grid[min(best + 1, 1000)].item()
    return grid[best].item()


def emphasis_spread(weight: WeightFunction, p: Tensor | None = None) -> float:
    """Definition 2: the variance of the weights.

    Args:
        weight: the weight function.
        p: probabilities of the labelled classes of a batch; None means spread evenly over
            [0, 1], as in imae.txt, eq. 12 and 13.
    """
    if p is None:
        p = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    return weight(p).var(correction=0).item()

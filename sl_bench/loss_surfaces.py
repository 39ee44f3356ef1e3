"""Confidence-aware losses as functions of two numbers: the confidence and what the network gives.

What figure 1 of the supplementary draws: x is the confidence sigma, y a similarity, an average
precision, a difference of logits or a loss.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sl_core import data_params_loss, introspection_loss, optimal_confidence, reliability_loss

TAU, LAM = 0.0, 1.0  # of the drawn SuperLoss


@dataclass(frozen=True)
class Surface:
    """One column of the figure.

    Attributes:
        name: of the loss.
        formula: as drawn, in mathtext.
        symbol: of y in a formula.
        y_label: of the y axis.
        sigma_range: smallest and largest confidence.
        y_range: smallest and largest y.
        loss: (y, sigma), both (R, C), to the loss (R, C).
        shown_as_log: whether the logarithm of the loss is drawn.
        loss_symbol: of the loss in a formula.
        best_confidence: the sigma that minimises the loss of each y, if it is in the open range.
    """

    name: str
    formula: str
    symbol: str
    y_label: str
    sigma_range: tuple[float, float]
    y_range: tuple[float, float]
    loss: Callable[[Tensor, Tensor], Tensor]
    shown_as_log: bool = False
    loss_symbol: str = r"\ell"
    best_confidence: Callable[[Tensor], Tensor] | None = None

    def grid(self, size: int = 161) -> tuple[Tensor, Tensor]:
        """Sigma and y, both (size, size): sigma grows along columns, y along rows."""
        y = torch.linspace(*self.y_range, size, dtype=torch.float64)
        sigma = torch.linspace(*self.sigma_range, size, dtype=torch.float64)
        y, sigma = torch.meshgrid(y, sigma, indexing="ij")
        return sigma, y

    def loss_and_gradient(self, sigma: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and the absolute value of its derivative by y, both (R, C)."""
        y = y.clone().requires_grad_()
        loss = self.loss(y, sigma)
        (gradient,) = torch.autograd.grad(loss.sum(), y)
        return loss.detach(), gradient.abs()


def superloss_objective(loss: Tensor, confidence: Tensor) -> Tensor:
    """Eq. 6, ``sigma (l - tau) + lam (log sigma)^2``; ``super_loss`` is its minimum over sigma."""
    return confidence * (loss - TAU) + LAM * confidence.log() ** 2


def _positive_pair(similarity: Tensor, confidence: Tensor) -> Tensor:
    return introspection_loss(similarity, torch.ones_like(similarity), confidence)


def _two_classes(difference: Tensor, confidence: Tensor) -> Tensor:
    """Logits (0, difference), label 1, no regularisation: eq. 3."""
    logits = torch.stack([torch.zeros_like(difference), difference], dim=-1).flatten(0, 1)
    targets = torch.ones(len(logits), dtype=torch.long)
    return data_params_loss(logits, targets, confidence.flatten()).reshape(difference.shape)


SURFACES = (
    Surface(
        name="Introspection",
        formula=r"$\ell=\log\frac{e^\sigma-1}{\sigma}-\sigma s$",
        symbol="s",
        y_label="similarity $s$",
        sigma_range=(0.02, 10),
        y_range=(0, 1),
        loss=_positive_pair,
    ),
    Surface(
        name="Reliability (R2D2)",
        formula=r"$\ell=\sigma(1-\mathrm{AP})+\frac{1-\sigma}{2}$",
        symbol=r"\mathrm{AP}",
        y_label="average precision AP",
        sigma_range=(0, 1),
        y_range=(0, 1),
        loss=reliability_loss,
    ),
    Surface(
        name="Data Parameters",
        formula=r"$\log\ell,\ \ \ell=\log(1+e^{-\sigma\,\Delta z})$",
        symbol=r"\Delta z",
        y_label=r"difference of logits $\Delta z$",
        sigma_range=(0.02, 4),
        y_range=(-3, 3),
        loss=_two_classes,
        shown_as_log=True,
    ),
    Surface(
        name="SuperLoss",
        formula=r"$\mathrm{SL}=\sigma(\ell-\tau)+\lambda(\log\sigma)^2,\ \lambda=1$",
        symbol=r"\ell",
        y_label=r"loss $\ell-\tau$",
        sigma_range=(0.15, 3),
        y_range=(-1, 2),
        loss=superloss_objective,
        loss_symbol=r"\mathrm{SL}",
        best_confidence=lambda loss: optimal_confidence(loss, TAU, LAM),
    ),
)

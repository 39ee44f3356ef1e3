"""The papers' figures of their losses, every value computed by sl_core or by autograd through it.

Each figure is a function that returns a matplotlib ``Figure``; ``FIGURES`` has them by name.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from sl_bench.figure_style import COLOURS, MARKED, PROBABILITY, Colour, panels, shades, styled
from sl_bench.loss_surfaces import SURFACES, Surface
from sl_bench.weight_figures import gr_weights, imae_temperatures, imae_weights
from sl_core import cce_loss, imae_loss, mae_loss, optimal_confidence, super_loss

LogitLoss = Callable[[Tensor, Tensor], Tensor]


def confidence_aware_losses() -> Figure:
    """Supplementary, figure 1: four losses of (confidence, y); below, the gradient's size."""
    figure = Figure(figsize=(11.5, 5), layout=ConstrainedLayoutEngine(w_pad=0.1))
    rows = figure.subplots(2, len(SURFACES))
    for (above, below), surface in zip(rows.T, SURFACES, strict=True):
        sigma, y = surface.grid()
        loss, gradient = surface.loss_and_gradient(sigma, y)
        _heat_map(above, surface, loss.log() if surface.shown_as_log else loss)
        _heat_map(below, surface, gradient)
        above.set_title(f"{surface.name}\n{surface.formula}")
        below.set_title(rf"$|\,\partial {surface.loss_symbol}\,/\,\partial {surface.symbol}\,|$")
        if surface.best_confidence is not None:
            values = y[:, 0]
            above.plot(surface.best_confidence(values), values, "--", color=MARKED, lw=1.5)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            above.text(0.85, 1.35, r"best $\sigma$", color=MARKED, bbox=box)
    return figure


def superloss_confidence(
    lams: Sequence[float] = (0.1, 0.25, 1.0, 4.0, math.inf), tau: float = math.log(10)
) -> Figure:
    """SuperLoss and its confidence, which is its gradient, for several lambda."""
    figure, (left, right) = panels(2)
    loss = torch.linspace(0, 3 * tau, 601, dtype=torch.float64)
    for lam, colour in zip(lams, shades(len(lams)), strict=True):
        label = r"$\infty$ (plain loss)" if math.isinf(lam) else f"{lam:g}"
        left.plot(loss, super_loss(loss, tau, lam), color=colour, label=label)
        right.plot(loss, optimal_confidence(loss, tau, lam), color=colour, label=label)
    left.set(ylabel=r"$\mathrm{SL}_\lambda(\ell)$", title="SuperLoss")
    left.legend(title=r"$\lambda$")
    right.set(ylabel=r"$\sigma_\lambda(\ell)=\mathrm{d\,SL}_\lambda/\mathrm{d}\ell$")
    right.set(title=r"Its confidence: $e$ at most, $1$ at $\tau$")
    right.set_yticks([0, 0.5, 1, 1.5, 2, math.e], ["0", "0.5", "1", "1.5", "2", "$e$"])
    right.axhline(math.e, color="black", lw=0.7, ls=":")
    right.axhline(1, color="black", lw=0.7, ls=":")
    for axes in (left, right):
        axes.axvline(tau, color="black", lw=0.7, ls=":")
        axes.set_xticks([0, tau, 2 * tau, 3 * tau], ["0", r"$\tau$", r"$2\tau$", r"$3\tau$"])
        axes.set(xlabel=r"loss $\ell$  ($\tau=\log 10$)", xlim=(0, 3 * tau))
    return figure


def imae_losses(temperatures: Sequence[float] = (0.5, 4.0, 8.0)) -> Figure:
    """imae.txt, figure 3: IMAE as the integral of its derivative.

    Integrals end at p = 1/2 and not, as in the paper, at 1, where that of IMAE is infinite.
    """
    figure, (left, right) = panels(2)
    drawn: list[tuple[str, LogitLoss, Colour]] = [
        ("CCE", cce_loss, COLOURS["cce"]),
        ("MAE", mae_loss, COLOURS["mae"]),
    ]
    for temperature, colour in zip(temperatures, shades(len(temperatures)), strict=True):
        drawn.append((f"IMAE, $T={temperature:g}$", partial(imae_loss, T=temperature), colour))
    p = torch.linspace(0.02, 0.98, 481, dtype=torch.float64)
    for label, function, colour in drawn:
        value, slope = _loss_and_slope(function, p)
        middle = value[(p - 0.5).abs().argmin()]
        left.plot(p, slope, color=colour, label=label)
        right.plot(p, value - middle, color=colour, label=label)
    part = (p >= 0.2) & (p <= 0.5)
    left.fill_between(p[part], slope[part], color=colour, alpha=0.2, lw=0)
    area = (value[part][0] - middle).item()
    left.text(0.35, 0.5, f"area {area:.1f}", ha="center")
    right.plot([0.2], [area], "o", color=colour, ms=5)
    right.annotate(f"{area:.1f}", (0.2, area), (6, 2), textcoords="offset points")
    left.set(ylim=(0, 30), ylabel=r"$-\,\partial L\,/\,\partial p$")
    left.set_title(r"Derivative; its area from $p$ to $\frac{1}{2}$ is the loss")
    right.set(ylabel=r"$L(p)-L(\frac{1}{2})$", title="Loss")
    for axes in (left, right):
        axes.set(xlabel=PROBABILITY, xlim=(0, 1))
    right.legend()
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "confidence_aware_losses": confidence_aware_losses,
    "superloss_confidence": superloss_confidence,
    "imae_weights": imae_weights,
    "imae_losses": imae_losses,
    "imae_temperatures": imae_temperatures,
    "gr_weights": gr_weights,
}


def draw(name: str) -> Figure:
    """The figure of that name in the common style; ValueError, with the known names, if unknown."""
    if name not in FIGURES:
        raise ValueError(f"figure is {name!r}, expected one of {', '.join(FIGURES)}")
    with styled():
        return FIGURES[name]()


def _heat_map(axes: Axes, surface: Surface, values: Tensor) -> None:
    drawn = tuple(tensor.numpy() for tensor in (*surface.grid(), values))
    mesh = axes.pcolormesh(*drawn, cmap="cividis", shading="gouraud", rasterized=True)
    axes.contour(*drawn, levels=12, colors="black", linewidths=0.5, linestyles="solid")
    axes.figure.colorbar(mesh, ax=axes, pad=0.02, aspect=25)
    axes.set(xlabel=r"confidence $\sigma$", ylabel=surface.y_label)


def _loss_and_slope(function: LogitLoss, p: Tensor) -> tuple[Tensor, Tensor]:
    """L and -dL/dp at the probabilities p, (N,), by autograd through two logits."""
    p = p.clone().requires_grad_()
    logits = torch.stack([torch.logit(p), torch.zeros_like(p)], dim=1)
    value = function(logits, torch.zeros(len(p), dtype=torch.long))
    (slope,) = torch.autograd.grad(value.sum(), p)
    return value.detach(), -slope

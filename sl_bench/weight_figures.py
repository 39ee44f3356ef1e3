"""What the losses emphasise: their weights against the probability of the labelled class."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sl_bench.figure_style import COLOURS, PROBABILITY, Colour, panels, shades
from sl_core import (
    cce_weight,
    emphasis_focus,
    emphasis_spread,
    gce_weight,
    gr_weight,
    imae_weight,
    mae_weight,
)


def imae_weights() -> Figure:
    """imae.txt, figure 1: the weights of CCE, MAE and IMAE, with their variances."""
    figure, (axes,) = panels(1)
    for label, weight, colour in (
        ("CCE", cce_weight, COLOURS["cce"]),
        ("MAE", mae_weight, COLOURS["mae"]),
        ("IMAE, $T=8$", partial(imae_weight, T=8.0), COLOURS["own"]),
    ):
        _weight_line(axes, weight, f"{label}  ({emphasis_spread(weight):.2f})", color=colour)
    _label_weights(axes, "loss (variance of the weight)")
    return figure


def imae_temperatures(temperatures: Sequence[float] = (0, 0.5, 2, 4, 8, 16)) -> Figure:
    """imae.txt, figure 5: IMAE's weight for several T."""
    figure, (axes,) = panels(1)
    for temperature, colour in zip(temperatures, shades(len(temperatures)), strict=True):
        weight = partial(imae_weight, T=float(temperature))
        label = f"{temperature:g}  ({emphasis_spread(weight):.3g})"
        _weight_line(axes, weight, label, color=colour)
    _label_weights(axes, "$T$ (variance of the weight)", log=True)
    return figure


def gr_weights() -> Figure:
    """gradient_rescaling.txt, figure 1: GR beside other losses, for several beta and lambda.

    The paper's text gives the settings of (a) and beta of (c); the others are chosen here.
    """
    figure, (first, second, third) = panels(3)
    for label, function, colour in (
        ("CCE", cce_weight, COLOURS["cce"]),
        ("MAE", mae_weight, COLOURS["mae"]),
        ("GCE, $q=0.7$", gce_weight, COLOURS["gce"]),
    ):
        _weight_line(first, function, label, color=colour, ls="--")
    for (beta, lam), colour in zip(((2, 0), (8, 0.5), (12, 1)), shades(3), strict=True):
        label = rf"GR, $\beta={beta}$, $\lambda={lam:g}$"
        _weight_line(first, partial(gr_weight, beta=beta, lam=lam), label, color=colour)
    for lam, style in ((0.5, "-"), (2.0, "--")):
        for beta, colour in zip((4, 8, 16), shades(3), strict=True):
            label = rf"$\beta={beta}$, $\lambda={lam:g}$"
            weight = partial(gr_weight, beta=beta, lam=lam)
            _weight_line(second, weight, label, color=colour, ls=style)
    lams = (0, 0.5, 1, 2, 4)
    for lam, colour in zip(lams, shades(len(lams)), strict=True):
        weight = partial(gr_weight, beta=8, lam=lam)
        _weight_line(third, weight, rf"$\lambda={lam:g}$", color=colour)
    for axes, title in (
        (first, "(a) GR and other losses"),
        (second, r"(b) GR: $\beta$ sets the spread"),
        (third, r"(c) GR, $\beta=8$: $\lambda$ sets the focus"),
    ):
        axes.set_title(title)
        _label_weights(axes, None, log=True)
    first.set_ylim(0.1, 60)
    third.set_ylim(0.8, 6000)
    return figure


def _weight_line(
    axes: Axes, weight: Callable[[Tensor], Tensor], label: str, color: Colour, ls: str = "-"
) -> None:
    """The weight against p, and a dot at its emphasis focus."""
    p = torch.linspace(0, 1, 1001, dtype=torch.float64)
    values = weight(p)
    axes.plot(p, values, label=label, color=color, ls=ls)
    if values.max() > values.min():
        focus = torch.tensor([emphasis_focus(weight)], dtype=torch.float64)
        axes.plot(focus, weight(focus), "o", color=color, ms=4, clip_on=False, zorder=3)


def _label_weights(axes: Axes, legend: str | None, log: bool = False) -> None:
    axes.set(xlabel=PROBABILITY, ylabel=r"weight  $\|\partial L/\partial z\|_1$", xlim=(0, 1))
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    if legend is None:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    else:
        axes.legend(title=legend, loc="center left", bbox_to_anchor=(1, 0.5), alignment="left")

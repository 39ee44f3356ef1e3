"""One look for all figures: sizes, fonts and colours that the colour-blind can tell apart."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "mathtext.fontset": "cm",
    "pdf.fonttype": 42,  # text stays text, which journals ask for
    "svg.fonttype": "none",
}
Colour = str | tuple[float, float, float, float]
# Okabe and Ito's palette, which the colour-blind can tell apart.
COLOURS: dict[str, Colour] = {
    "cce": "#E69F00",
    "mae": "#0072B2",
    "gce": "#CC79A7",
    "own": "#009E73",
}
MARKED = "#D55E00"
PANEL = (3.5, 2.9)  # inches
PROBABILITY = "probability $p$ of the labelled class"


def styled() -> AbstractContextManager[None]:
    """The context to draw and to save in; matplotlib reads some settings only when it saves."""
    return matplotlib.rc_context(STYLE)


def panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    """A figure of equal panels in a row."""
    width, height = PANEL
    # A lone panel has its legend beside it.
    figure = Figure(figsize=(width * max(count, 1.45), height), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False)[0]


def shades(count: int) -> list[Colour]:
    """Colours that grow lighter, without viridis's yellow, which is faint on white."""
    return [matplotlib.colormaps["viridis"](0.85 * i / max(count - 1, 1)) for i in range(count)]

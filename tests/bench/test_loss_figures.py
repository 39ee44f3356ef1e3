"""The drawn lines obey the laws of the losses: read back from the axes, not from the code."""

import math
import re

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from numpy.typing import NDArray

from sl_bench.loss_figures import FIGURES, draw
from sl_bench.loss_surfaces import SURFACES, superloss_objective
from sl_core import build_loss, optimal_confidence, super_loss

Array = NDArray[np.float64]


def lines_of(axes: Axes) -> dict[str, tuple[Array, Array]]:
    """Label to x and y, of the lines in the legend."""
    named = {str(line.get_label()): line for line in axes.get_lines()}
    return {
        label: (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for label, line in named.items()
        if not label.startswith("_")
    }


def dots_of(axes: Axes) -> list[tuple[float, float]]:
    dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
    return [(np.asarray(d.get_xdata()).item(), np.asarray(d.get_ydata()).item()) for d in dots]


def meshes_of(name: str) -> list[list[Array]]:
    """The values of the heat maps, by row and column of the figure."""
    axes = [a for a in draw(name).axes if any(isinstance(c, QuadMesh) for c in a.collections)]
    drawn = [c for a in axes if a.get_xlabel() for c in a.collections if isinstance(c, QuadMesh)]
    meshes = [np.asarray(mesh.get_array()).reshape(161, 161) for mesh in drawn]
    return [meshes[: len(SURFACES)], meshes[len(SURFACES) :]]


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_labelled_and_lines_finite(name: str) -> None:
    panels = [axes for axes in draw(name).axes if axes.get_label() != "<colorbar>"]
    assert panels
    for axes in panels:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        for x, y in lines_of(axes).values():
            assert np.isfinite(x).all()
            assert np.isfinite(y).all()


def test_an_unknown_figure_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'gr_weight', expected one of .*gr_weights"):
        draw("gr_weight")


def test_drawn_gradient_is_the_slope_of_the_drawn_loss() -> None:
    """By differences along y of the first row, against the second row."""
    losses, gradients = meshes_of("confidence_aware_losses")
    for surface, loss, gradient in zip(SURFACES, losses, gradients, strict=True):
        value = np.exp(loss) if surface.shown_as_log else loss
        y = surface.grid()[1][:, 0].numpy()
        slope = np.abs(value[2:] - value[:-2]) / (y[2:] - y[:-2])[:, None]
        np.testing.assert_allclose(slope, gradient[1:-1], rtol=5e-3, atol=1e-4)


def test_the_gradient_grows_with_the_confidence_except_that_of_data_parameters() -> None:
    """What the supplementary says of its figure."""
    _, gradients = meshes_of("confidence_aware_losses")
    for surface, gradient in zip(SURFACES, gradients, strict=True):
        grows = (np.diff(gradient, axis=1) > 0).all()
        assert grows == (surface.name != "Data Parameters")


def test_superloss_is_the_least_of_its_surface() -> None:
    """At the drawn confidence, unless it is capped; found on a fine grid."""
    sigma = torch.linspace(0.15, math.e, 20001, dtype=torch.float64)
    for loss in (-0.7, -0.3, 0.0, 0.5, 2.0):
        values = superloss_objective(torch.full_like(sigma, loss), sigma)
        alone = torch.tensor([loss], dtype=torch.float64)
        assert values.min().item() == pytest.approx(super_loss(alone, 0.0, 1.0).item(), abs=1e-6)
        best = sigma[values.argmin()].item()
        assert best == pytest.approx(optimal_confidence(alone, 0.0, 1.0).item(), abs=1e-3)


def test_confidence_is_the_gradient_of_superloss_capped_at_e_and_1_at_tau() -> None:
    left, right = draw("superloss_confidence").axes
    tau = left.get_xticks()[1]
    values, confidences = lines_of(left), lines_of(right)
    assert values.keys() == confidences.keys()
    for label, (x, sigma) in confidences.items():
        lam = float(label) if re.fullmatch(r"[\d.]+", label) else math.inf
        loss = torch.tensor(x, requires_grad=True)
        (slope,) = torch.autograd.grad(super_loss(loss, tau, lam).sum(), loss)
        np.testing.assert_allclose(sigma, slope, rtol=1e-9)
        differences = np.diff(values[label][1]) / np.diff(x)
        assert (differences <= sigma[:-1] + 1e-9).all()
        assert (differences >= sigma[1:] - 1e-9).all()
        assert sigma.max() <= math.e
        assert (sigma == math.e).any() == (x[0] <= tau - 2 * lam / math.e)
        assert np.interp(tau, x, sigma) == pytest.approx(1, abs=0.02)
        assert values[label][1][x > tau].min() >= 0


def test_weights_are_largest_where_the_papers_say() -> None:
    """CCE at 0, MAE and IMAE at 0.5 whatever T; their variances 0.33, 0.09 and 4.55."""
    (axes,) = draw("imae_weights").axes
    peaks = {label: x[y.argmax()] for label, (x, y) in lines_of(axes).items()}
    expected = {"CCE  (0.33)": 0, "MAE  (0.09)": 0.5, "IMAE, $T=8$  (4.55)": 0.5}
    assert peaks == pytest.approx(expected)
    (axes,) = draw("imae_temperatures").axes
    for label, (x, y) in lines_of(axes).items():
        temperature = float(label.split()[0])
        assert y.max() == pytest.approx(math.exp(temperature / 4))
        assert temperature == 0 or x[y.argmax()] == 0.5


def test_focus_of_gr_is_drawn_at_lam_over_1_plus_lam() -> None:
    for axes in draw("gr_weights").axes:
        lines, dots = lines_of(axes), dots_of(axes)
        assert len(lines) == len(dots)
        for (label, (x, y)), (focus, height) in zip(lines.items(), dots, strict=True):
            assert x[y.argmax()] == pytest.approx(focus, abs=1e-3)
            assert y.max() == pytest.approx(height, rel=1e-4)
            found = re.search(r"\\lambda=([\d.]+)", label)
            if found:
                lam = float(found[1])
                assert focus == pytest.approx(lam / (1 + lam), abs=1e-5)


def test_weights_of_gr_are_the_size_of_the_gradient_in_the_logits() -> None:
    """Autograd through the loss itself gives the drawn weight."""
    first = draw("gr_weights").axes[0]
    x, y = lines_of(first)[r"GR, $\beta=8$, $\lambda=0.5$"]
    p, weight = torch.tensor(x[1:-1]), y[1:-1]
    logits = torch.stack([p.logit(), torch.zeros_like(p)], dim=1).requires_grad_()
    targets = torch.zeros(len(p), dtype=torch.long)
    build_loss("gr", beta=8.0, lam=0.5, reduction="sum")(logits, targets).backward()
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.abs().sum(1), weight, rtol=1e-9)


def test_area_below_the_derivative_is_the_loss() -> None:
    left, right = draw("imae_losses").axes
    for label, (p, loss) in lines_of(right).items():
        slope = lines_of(left)[label][1]
        part = (p >= 0.2) & (p <= 0.5)
        area = torch.trapezoid(torch.tensor(slope[part]), torch.tensor(p[part])).item()
        assert loss[part][0] == pytest.approx(area, rel=1e-4)
    ((_, marked),) = dots_of(right)
    assert f"area {marked:.1f}" in [text.get_text() for text in left.texts]

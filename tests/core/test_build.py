"""build_loss: every name works, and errors list what is known."""

from typing import Any

import pytest
import torch
from torch import Tensor

import sl_core
from sl_core import LOSS_NAMES, build_loss, loss_options

LOGITS = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1, 2, 3, 0])
LOSSES = torch.rand(5)
CONFIDENCE = torch.full((5,), 0.8)
CLASSIFICATION = (LOGITS, TARGETS)
CALLS: dict[str, tuple[dict[str, Any], tuple[Tensor, ...], Tensor]] = {
    "none": ({}, (LOSSES,), LOSSES),
    "superloss": ({"tau": 0.5, "lam": 2.0}, (LOSSES,), sl_core.super_loss(LOSSES, 0.5, 2.0)),
    "multitask": ({"num_tasks": 5}, (LOSSES,), LOSSES / 2),
    "cce": ({}, CLASSIFICATION, sl_core.cce_loss(*CLASSIFICATION)),
    "mae": ({}, CLASSIFICATION, sl_core.mae_loss(*CLASSIFICATION)),
    "gce": ({"q": 0.3}, CLASSIFICATION, sl_core.gce_loss(*CLASSIFICATION, q=0.3)),
    "gce_trunc": (
        {"q": 0.3, "k": 0.1},
        CLASSIFICATION,
        sl_core.gce_trunc_loss(*CLASSIFICATION, q=0.3, k=0.1),
    ),
    "imae": ({"T": 4.0}, CLASSIFICATION, sl_core.imae_loss(*CLASSIFICATION, T=4.0)),
    "gr": (
        {"beta": 3.0, "lam": 0.2},
        CLASSIFICATION,
        sl_core.gr_loss(*CLASSIFICATION, beta=3.0, lam=0.2),
    ),
    "introspection": (
        {},
        (LOSSES, torch.ones(5), CONFIDENCE),
        sl_core.introspection_loss(LOSSES, torch.ones(5), CONFIDENCE),
    ),
    "reliability": ({}, (LOSSES, CONFIDENCE), sl_core.reliability_loss(LOSSES, CONFIDENCE)),
    "data_params": (
        {"lam": 0.5},
        (*CLASSIFICATION, CONFIDENCE),
        sl_core.data_params_loss(*CLASSIFICATION, CONFIDENCE, lam=0.5),
    ),
}


def test_every_name_is_tried_below() -> None:
    assert set(CALLS) == set(LOSS_NAMES)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_every_name_builds_its_loss_with_every_reduction(name: str) -> None:
    options, inputs, expected = CALLS[name]
    reduced = {"none": expected, "mean": expected.mean(), "sum": expected.sum()}
    for reduction, value in reduced.items():
        module = build_loss(name, reduction=reduction, **options)
        torch.testing.assert_close(module(*inputs), value)
        assert f"reduction={reduction}" in repr(module)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_an_unknown_option_lists_the_known_ones(name: str) -> None:
    options, _, _ = CALLS[name]
    with pytest.raises(ValueError, match=f"loss '{name}' has no option gamma; it has: ") as error:
        build_loss(name, gamma=2, **options)
    for option in (*options, "reduction"):
        assert option in str(error.value)
        assert option in loss_options(name)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="loss name is 'focal', expected one of") as error:
        build_loss("focal")
    assert all(name in str(error.value) for name in LOSS_NAMES)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_an_unknown_reduction_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="expected one of none, mean, sum"):
        build_loss(name, reduction="batch", **CALLS[name][0])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gce", {"q": 2}),
        ("gce_trunc", {"k": 1.0}),
        ("imae", {"T": -1}),
        ("gr", {"beta": -0.1}),
        ("gr", {"lam": "0.5"}),
        ("data_params", {"lam": -1}),
        ("multitask", {"num_tasks": 0}),
    ],
)
def test_an_option_out_of_range_is_an_error_before_training(
    name: str, options: dict[str, Any]
) -> None:
    (option,) = options
    with pytest.raises(ValueError, match=f"{option} is .*, expected"):
        build_loss(name, **options)


def test_multitask_variances_are_learned() -> None:
    module = build_loss("multitask", num_tasks=2)
    losses = torch.tensor([4.0, 0.25])
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(200):
        optimiser.zero_grad()
        module(losses).backward()
        optimiser.step()
    (log_variance,) = module.parameters()
    torch.testing.assert_close(log_variance.detach(), losses.log(), rtol=1e-3, atol=1e-3)


def test_plain_loss_masks_like_superloss() -> None:
    module = build_loss("none")
    loss = torch.tensor([1.0, float("nan"), 3.0], requires_grad=True)
    value = module(loss, groups=torch.tensor([0, 1, 2]), mask=torch.tensor([True, False, True]))
    value.backward()
    assert value.item() == 2
    assert loss.grad is not None
    assert loss.grad.tolist() == [0.5, 0, 0.5]
    torch.testing.assert_close(module.confidence, torch.tensor([1.0, 0.0, 1.0]))

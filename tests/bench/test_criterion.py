"""The losses by name: each is what it says, in value and gradient."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sl_bench.config import load_config
from sl_bench.criterion import Criterion, build_criterion, focal_loss, input_loss
from sl_core import gce_loss, gce_trunc_loss, gr_loss, imae_loss, mae_loss, super_loss


def criterion_of(*options: str) -> Criterion:
    return build_criterion(load_config(None, list(options)), 5)


@pytest.fixture
def logits() -> Tensor:
    return 3 * torch.randn(20, 5, generator=torch.Generator().manual_seed(0))


LABELS = torch.arange(20) % 5


def test_focal_loss_at_gamma_zero_is_cross_entropy_and_finite_at_its_ends(logits: Tensor) -> None:
    expected = F.cross_entropy(logits, LABELS, reduction="none")
    torch.testing.assert_close(focal_loss(logits, LABELS, 0.0), expected)
    p = logits.softmax(-1).gather(1, LABELS[:, None])[:, 0]
    torch.testing.assert_close(focal_loss(logits, LABELS, 2.0), -((1 - p) ** 2) * p.log())
    for gamma in (0.0, 0.5, 2.0):
        sure = torch.tensor([[200.0, 0.0], [-200.0, 0.0]], requires_grad=True)
        focal_loss(sure, torch.tensor([0, 0]), gamma).sum().backward()
        assert sure.grad is not None and sure.grad.isfinite().all()


def test_regression_losses_are_those_of_the_error() -> None:
    outputs, targets = torch.tensor([[3.0], [0.5]]), torch.tensor([0.0, 0.0])
    assert input_loss("l2")(outputs, targets).tolist() == [9.0, 0.25]
    assert input_loss("smooth_l1")(outputs, targets).tolist() == [2.5, 0.125]


@pytest.mark.parametrize(
    "options, expected",
    [
        (["LOSS.NAME", "mae"], mae_loss),
        (["LOSS.NAME", "gce", "LOSS.Q", "0.3"], lambda z, y: gce_loss(z, y, 0.3)),
        (
            ["LOSS.NAME", "gce_trunc", "LOSS.Q", "0.3", "LOSS.K", "0.2"],
            lambda z, y: gce_trunc_loss(z, y, 0.3, 0.2),
        ),
        (["LOSS.NAME", "imae", "LOSS.T", "2.0"], lambda z, y: imae_loss(z, y, 2.0)),
        (
            ["LOSS.NAME", "gr", "LOSS.BETA", "3.0", "LOSS.GR_LAMBDA", "1.5"],
            lambda z, y: gr_loss(z, y, 3.0, 1.5),
        ),
        (
            ["LOSS.NAME", "superloss", "LOSS.TAU", "logc", "LOSS.LAMBDA", "0.25"],
            lambda z, y: super_loss(F.cross_entropy(z, y, reduction="none"), math.log(5), 0.25),
        ),
    ],
)
def test_the_config_reaches_the_loss(logits: Tensor, options: list[str], expected: object) -> None:
    assert callable(expected)
    criterion = criterion_of(*options)
    torch.testing.assert_close(criterion(logits, LABELS), expected(logits, LABELS))
    plain = F.cross_entropy(logits, LABELS, reduction="none")
    torch.testing.assert_close(criterion.plain_losses, plain)
    assert (criterion.confidence is not None) == ("superloss" in options)


def test_truncation_begins_after_the_warm_up_and_survives_a_reload(logits: Tensor) -> None:
    options = ["LOSS.NAME", "gce_trunc", "LOSS.WARMUP_STEPS", "2"]
    criterion = criterion_of(*options)
    gce, truncated = gce_loss(logits, LABELS), gce_trunc_loss(logits, LABELS)
    assert not torch.equal(gce, truncated)
    torch.testing.assert_close(criterion(logits, LABELS), gce)
    criterion.eval()
    criterion(logits, LABELS)
    criterion.train()
    resumed = criterion_of(*options)
    resumed.load_state_dict(criterion.state_dict())
    for module in (criterion, resumed):
        torch.testing.assert_close(module(logits, LABELS), gce)
        torch.testing.assert_close(module(logits, LABELS), truncated)


def test_an_option_out_of_range_names_the_loss() -> None:
    with pytest.raises(ValueError, match=r"LOSS for gce_trunc: k is 1\.5"):
        criterion_of("LOSS.NAME", "gce_trunc", "LOSS.K", "1.5")

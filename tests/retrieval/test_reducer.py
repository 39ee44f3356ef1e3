"""SuperLossReducer with the real losses of pytorch-metric-learning."""

import logging

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import LpDistance
from torch import Tensor

from sl_core import super_loss
from sl_retrieval.reducer import SuperLossReducer


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(24, 8, generator=generator), torch.arange(24) % 6


def test_contrastive_pairs_are_weighted_by_their_own_thresholds(
    batch: tuple[Tensor, Tensor],
) -> None:
    embeddings, labels = batch
    loss = pml.ContrastiveLoss(reducer=SuperLossReducer(tau="avg", lam=0.1))
    found = loss(embeddings, labels)
    distances = LpDistance()(embeddings)
    same = labels[:, None] == labels[None]
    off_diagonal = ~torch.eye(len(labels), dtype=torch.bool)
    expected = torch.zeros(())
    for values in (distances[same & off_diagonal], (1 - distances[~same]).relu()):
        active = values[values > 0]
        expected = expected + super_loss(active, active.mean(), 0.1).mean()
    torch.testing.assert_close(found, expected)
    names = set(loss.state_dict())
    assert {f"reducer.reducers.{part}.superloss.tau" for part in ("pos_loss", "neg_loss")} <= names


@pytest.mark.parametrize(
    "loss_class",
    [
        pml.ContrastiveLoss,
        pml.TripletMarginLoss,
        pml.MultiSimilarityLoss,
        pml.NTXentLoss,
        pml.SupConLoss,
        pml.CircleLoss,
    ],
)
def test_with_lam_to_infinity_the_gradient_is_that_of_the_mean(
    loss_class: type[pml.BaseMetricLossFunction], batch: tuple[Tensor, Tensor]
) -> None:
    """tau 0 and lam 1e9: the plain mean over losses that are not 0."""
    from pytorch_metric_learning.reducers import AvgNonZeroReducer

    embeddings, labels = batch
    gradients = []
    for reducer in (SuperLossReducer(tau=0.0, lam=1e9), AvgNonZeroReducer()):
        leaf = embeddings.clone().requires_grad_()
        loss_class(reducer=reducer)(leaf, labels).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_the_thresholds_come_back_from_a_state_dict(batch: tuple[Tensor, Tensor]) -> None:
    loss = pml.TripletMarginLoss(reducer=SuperLossReducer(tau="expavg", lam=0.1))
    loss(*batch)
    other = pml.TripletMarginLoss(reducer=SuperLossReducer(tau="expavg", lam=0.1))
    other.load_state_dict(loss.state_dict())
    torch.testing.assert_close(other.eval()(*batch), loss.eval()(*batch))


def test_a_loss_that_reduces_itself_is_passed_on_with_one_warning(
    batch: tuple[Tensor, Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    wrapped = pml.HistogramLoss(n_bins=10, reducer=SuperLossReducer(tau="avg", lam=0.1))
    with caplog.at_level(logging.WARNING):
        first, second = wrapped(*batch), wrapped(*batch)
    torch.testing.assert_close(first, pml.HistogramLoss(n_bins=10)(*batch))
    torch.testing.assert_close(first, second)
    assert sum("already reduced" in record.message for record in caplog.records) == 1


def test_a_batch_without_pairs_gives_a_zero_with_a_graph() -> None:
    embeddings = torch.randn(3, 4, requires_grad=True)
    loss = pml.ContrastiveLoss(reducer=SuperLossReducer())(embeddings, torch.zeros(3).long())
    loss.backward()
    assert embeddings.grad is not None

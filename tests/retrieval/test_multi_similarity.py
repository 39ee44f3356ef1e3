"""Equations 3, 4, 5 and 7 of bspml.txt against loops; all weights 1 give the plain loss."""

import math

import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch import Tensor

from sl_retrieval import multi_similarity
from sl_retrieval.multi_similarity import WeightedMultiSimilarityLoss

ALPHA, BETA, BASE, EPSILON = 2.0, 10.0, 0.6, 0.1


def batch(seed: int, count: int = 12, classes: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    labels = torch.arange(count) % classes
    return embeddings, labels, torch.rand(count, generator=generator, dtype=torch.float64)


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / one.norm() / other.norm())


def informative(embeddings: Tensor, labels: Tensor, a: int) -> tuple[list[int], list[int]]:
    """Equations 4 and 5, word for word."""
    everything = range(len(labels))
    similarity = [cosine(embeddings[a], embeddings[i]) for i in everything]
    positives = [i for i in everything if labels[i] == labels[a] and i != a]
    negatives = [i for i in everything if labels[i] != labels[a]]
    if not positives or not negatives:
        return [], []
    hardest = min(similarity[p] for p in positives)
    nearest = max(similarity[n] for n in negatives)
    return (
        [p for p in positives if similarity[p] < nearest + EPSILON],
        [n for n in negatives if similarity[n] > hardest - EPSILON],
    )


def brute_parts(embeddings: Tensor, a: int, p: list[int], n: list[int]) -> tuple[float, float]:
    pull = sum(math.exp(-ALPHA * (cosine(embeddings[a], embeddings[i]) - BASE)) for i in p)
    push = sum(math.exp(BETA * (cosine(embeddings[a], embeddings[i]) - BASE)) for i in n)
    return math.log(1 + pull) / ALPHA, math.log(1 + push) / BETA


def brute_loss(embeddings: Tensor, labels: Tensor, weights: Tensor) -> float:
    """Equation 7."""
    total = 0.0
    for a in range(len(labels)):
        p, n = informative(embeddings, labels, a)
        positive, negative = brute_parts(embeddings, a, p, n)
        if p:
            total += float(weights[a]) * float(weights[p].sum()) / len(p) * positive
        if n:
            total += float(weights[a]) * float(weights[n].sum()) / len(n) * negative
    return total / len(labels)


@pytest.mark.parametrize("seed", range(5))
def test_weighted_loss_and_pairs_are_those_of_the_equations(seed: int) -> None:
    embeddings, labels, weights = batch(seed)
    loss = WeightedMultiSimilarityLoss(ALPHA, BETA, BASE, EPSILON)
    losses = loss.anchor_losses(embeddings, labels)
    for a in range(len(labels)):
        p, n = informative(embeddings, labels, a)
        assert losses.positive_pairs[a].nonzero().flatten().tolist() == p
        assert losses.negative_pairs[a].nonzero().flatten().tolist() == n
        parts = (losses.positive[a].item(), losses.negative[a].item())
        assert parts == pytest.approx(brute_parts(embeddings, a, p, n))
    expected = brute_loss(embeddings, labels, weights)
    assert loss(embeddings, labels, weights).item() == pytest.approx(expected)


def test_all_weights_one_equals_the_plain_loss_in_value_and_gradient() -> None:
    embeddings, labels, _ = batch(7)
    gradients = []
    plain = MultiSimilarityLoss(ALPHA, BETA, BASE)
    miner = MultiSimilarityMiner(EPSILON)
    weighted = WeightedMultiSimilarityLoss(ALPHA, BETA, BASE, EPSILON)
    for compute in (
        lambda x: plain(x, labels, miner(x, labels)),
        lambda x: weighted(x, labels, torch.ones(len(labels))),
        lambda x: weighted(x, labels),
    ):
        x = embeddings.clone().requires_grad_()
        value = compute(x)
        value.backward()
        assert x.grad is not None
        gradients.append(torch.cat([value.detach().flatten(), x.grad.flatten()]))
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[0], gradients[2])


def test_a_sample_of_weight_zero_adds_nothing_as_anchor_nor_to_its_partners_factors() -> None:
    embeddings, labels, weights = batch(3)
    weights[4] = 0
    loss = WeightedMultiSimilarityLoss(ALPHA, BETA, BASE, EPSILON)
    expected = brute_loss(embeddings, labels, weights)
    assert loss(embeddings, labels, weights).item() == pytest.approx(expected)
    assert loss(embeddings, labels, torch.zeros(12)).item() == 0


@pytest.mark.parametrize("rows", [3, 100])
def test_data_set_losses_are_equation_3_without_mining(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi_similarity, "ROWS_AT_ONCE", rows)
    embeddings, labels, _ = batch(1, count=11, classes=4)
    labels[0] = 9  # alone in its class
    loss = WeightedMultiSimilarityLoss(ALPHA, BETA, BASE, EPSILON)
    positive, negative = loss.data_set_losses(embeddings, labels)
    for a in range(11):
        p = [i for i in range(11) if labels[i] == labels[a] and i != a]
        n = [i for i in range(11) if labels[i] != labels[a]]
        expected = brute_parts(embeddings, a, p, n)
        assert (positive[a].item(), negative[a].item()) == pytest.approx(expected)
    assert positive[0] == 0
    unmined = WeightedMultiSimilarityLoss(ALPHA, BETA, BASE, epsilon=None)
    torch.testing.assert_close(unmined.anchor_losses(embeddings, labels).positive, positive)


def test_a_batch_without_pairs_gives_a_zero_with_a_graph() -> None:
    embeddings = torch.randn(4, 3, requires_grad=True)
    loss = WeightedMultiSimilarityLoss()(embeddings, torch.arange(4))
    loss.backward()
    assert loss.item() == 0
    assert embeddings.grad is not None
    assert not embeddings.grad.any()


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="alpha is 0"):
        WeightedMultiSimilarityLoss(alpha=0)

"""The weights of the training samples in balanced self-paced metric learning (bspml.txt).

With the network fixed, the objective (equation 6) is a nonconvex quadratic function of the weights
w, one for each sample. For sample a of class c, of N_c samples, A_c = mean of w over class c, and C
classes::

    L(w) =  sum over c, a of  w_a / N_c (mean of w over c without a) xi+_a
          + sum over c, a of  w_a / N_c (mean of A_k over k != c) xi-_a
          - lambda sum over c of A_c
          + mu / (C - 1) sum over c < k of (A_c - A_k)^2

The paper's text lacks the 1 / N_c of the first two lines, but its gradient (equation 8) and its
equation 3 have it. A class of one sample has no positive pairs; its xi+ counts as 0.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sl_core.checks import require

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Draws(NamedTuple):
    """What chance decides in T steps of algorithm 3, as positions of samples.

    Attributes:
        anchors: (T,) whose weight is changed.
        positives: (T, K) of the anchor's class, never the anchor itself.
        negatives: (T, P, K): K of each of P other classes.
    """

    anchors: Indices
    positives: Indices
    negatives: Indices


@dataclass(frozen=True, eq=False)
class WeightProblem:
    """Equation 6 as a function of the weights.

    Attributes:
        labels: (N,) in [0, C); every class has a sample, and there are at least two.
        positive_losses: (N,) xi+ of the samples, at least 0.
        negative_losses: (N,) xi-, likewise.
        age: lambda. A sample is kept as long as its pairs and the balance cost less than this.
        balance: mu, at least 0; 0 is the paper's SPMS.
    """

    labels: Indices
    positive_losses: Floats
    negative_losses: Floats
    age: float
    balance: float

    def __post_init__(self) -> None:
        sizes = np.bincount(self.labels)
        require(len(sizes) >= 2, "number of classes", len(sizes), "at least 2")
        require(bool(sizes.all()), "labels", "a class without samples", "0 to C - 1, all in use")
        require(self.balance >= 0, "balance", self.balance, "a number at least 0")
        for name in ("positive_losses", "negative_losses"):
            losses = getattr(self, name)
            require(losses.shape == self.labels.shape, name, losses.shape, f"{self.labels.shape}")
            require(bool(np.isfinite(losses).all()), name, "nan or inf", "finite numbers")
        alone = sizes[self.labels] == 1
        object.__setattr__(self, "positive_losses", np.where(alone, 0.0, self.positive_losses))

    def objective(self, weights: Floats) -> float:
        """L(w)."""
        sizes, means = np.bincount(self.labels), class_means(weights, self.labels)
        size, mean = sizes[self.labels], means[self.labels]
        others = len(means) - 1
        positive = (size * mean - weights) / np.maximum(size - 1, 1) * self.positive_losses
        negative = (means.sum() - mean) / others * self.negative_losses
        spread = len(means) * (means**2).sum() - means.sum() ** 2
        pairs = (weights / size * (positive + negative)).sum()
        return float(pairs - self.age * means.sum() + self.balance / others * spread)

    def gradient(self, weights: Floats) -> Floats:
        """dL/dw, (N,), from all pairs."""
        size = np.bincount(self.labels)[self.labels]
        means = class_means(weights, self.labels)
        balance = self._balance_gradient(means)[self.labels]
        return (self.pair_costs(weights) + balance - self.age) / size

    def pair_costs(self, weights: Floats) -> Floats:
        """What each sample's pairs cost, (N,): the expectation of G_p + G_n in equation 8.

        At weights of 1 and without balance, a sample whose cost is above ``age`` is pushed out.
        """
        sizes = np.bincount(self.labels)
        own, other = self.positive_losses, self.negative_losses
        means, others = class_means(weights, self.labels), len(sizes) - 1
        weighted_own = np.bincount(self.labels, weights * own)[self.labels]
        weighted_other = class_means(weights * other, self.labels)
        size, mean = sizes[self.labels], means[self.labels]
        positive = weighted_own - weights * own + own * (size * mean - weights)
        negative = (
            weighted_other.sum()
            - weighted_other[self.labels]
            + other * (means.sum() - means[self.labels])
        )
        costs: Floats = positive / np.maximum(size - 1, 1) + negative / others
        return costs

    def estimates(self, weights: Floats, draws: Draws) -> Floats:
        """G of equation 8 for each of T draws, all at the same weights: (T,).

        The expectation over positives and negatives is the anchor's coordinate of ``gradient``.
        """
        partners, costs = self._sampled_costs(draws)
        classes = self.labels[draws.anchors]
        balance = self._balance_gradient(class_means(weights, self.labels))[classes]
        pairs = (weights[partners] * costs).sum(1)
        estimates: Floats = (pairs + balance - self.age) / np.bincount(self.labels)[classes]
        return estimates

    def take_steps(self, weights: Floats, draws: Draws, learning_rate: float) -> Floats:
        """Algorithm 3 along T draws: w_a <- clip(w_a - gamma G, 0, 1), one sample after the other.

        Gamma is the learning rate, but at most the inverse N_c^2 / (2 mu) of the curvature along
        w_a, half of what the paper's theorem 1 allows; so that a large mu cannot overshoot.

        Returns:
            New weights (N,) in [0, 1].
        """
        weights = weights.copy()
        partners, costs = self._sampled_costs(draws)
        sizes = np.bincount(self.labels)
        means = class_means(weights, self.labels)
        total, others = float(means.sum()), len(sizes) - 1
        with np.errstate(divide="ignore"):
            rates = np.minimum(learning_rate, sizes**2 / (2 * np.float64(self.balance)))
        for step, anchor in enumerate(draws.anchors):
            label = self.labels[anchor]
            mean = means[label]
            balance = 2 * self.balance * (mean - (total - mean) / others)
            pairs = weights[partners[step]] @ costs[step]
            estimate = (pairs + balance - self.age) / sizes[label]
            old = weights[anchor]
            new = min(1.0, max(0.0, old - rates[label] * estimate))
            weights[anchor] = new
            means[label] += (new - old) / sizes[label]
            total += (new - old) / sizes[label]
        return weights

    def _sampled_costs(self, draws: Draws) -> tuple[Indices, Floats]:
        """Partners (T, K + P K) and their factors, so that G_p + G_n = sum of w x factor."""
        own, other = self.positive_losses, self.negative_losses
        negatives = draws.negatives.reshape(len(draws.anchors), -1)
        anchors = draws.anchors[:, None]
        positive = (own[draws.positives] + own[anchors]) / draws.positives.shape[1]
        negative = (other[negatives] + other[anchors]) / negatives.shape[1]
        partners = np.concatenate([draws.positives, negatives], axis=1)
        return partners, np.concatenate([positive, negative], axis=1)

    def _balance_gradient(self, means: Floats) -> Floats:
        """G_b of each class: (C,)."""
        of_others = (means.sum() - means) / (len(means) - 1)
        gradient: Floats = 2 * self.balance * (means - of_others)
        return gradient


def draw_steps(
    labels: Indices, steps: int, classes: int, per_class: int, generator: np.random.Generator
) -> Draws:
    """Draw the samples of T steps of algorithm 3.

    The anchors are uniform and independent. The partners of an anchor are a uniform choice of
    different ones: neighbours in an order of the classes, and of the samples of a class, that is
    drawn once for all steps. Where there are fewer than asked for, they come again from the first.

    Args:
        labels: as in ``WeightProblem``.
        steps: T.
        classes: P, other classes of a step.
        per_class: K, samples of each class of a step.
        generator: where chance comes from.
    """
    sizes = np.bincount(labels)
    by_class = np.lexsort((generator.random(len(labels)), labels))
    starts = np.cumsum(sizes) - sizes
    rank = np.empty_like(by_class)
    rank[by_class] = np.arange(len(labels)) - starts[labels[by_class]]
    anchors = generator.integers(len(labels), size=steps)
    own = labels[anchors][:, None]
    # A sample that is alone in its class stands for its own positives; its xi+ is 0.
    mates = np.maximum(sizes[own] - 1, 1)
    ahead = (generator.integers(mates, size=(steps, 1)) + np.arange(per_class)) % mates
    positives = by_class[starts[own] + (rank[anchors][:, None] + 1 + ahead) % sizes[own]]
    order = generator.permutation(len(sizes))
    ahead = generator.integers(len(sizes) - 1, size=(steps, 1)) + np.arange(classes)
    others = order[(np.argsort(order)[own] + 1 + ahead % (len(sizes) - 1)) % len(sizes)]
    others = others[:, :, None]
    inside = generator.integers(sizes[others], size=(steps, classes, 1)) + np.arange(per_class)
    return Draws(anchors, positives, by_class[starts[others] + inside % sizes[others]])


def class_means(values: Floats, labels: Indices) -> Floats:
    """The mean over each class: (C,)."""
    means: Floats = np.bincount(labels, values) / np.bincount(labels)
    return means


def mean_and_spread(weights: Floats, labels: Indices) -> tuple[float, float]:
    """MAW and SDAW of equation 14: mean and standard deviation of the classes' mean weights."""
    means = class_means(weights, labels)
    return float(means.mean()), float(means.std())


def age_at(iteration: int, start: float, multiplier: float, maximum: float) -> float:
    """lambda of an outer iteration of algorithm 1, from 0: min(start multiplier^t, maximum)."""
    return min(start * multiplier**iteration, maximum)

"""Multi-similarity loss of each anchor: plain, weighted over a batch, and over a whole data set.

The equations are those of bspml.txt. pytorch-metric-learning has the same alpha and beta, and calls
rho ``base``; its default is 0.5, the paper's rho is 1.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.utils.loss_and_miner_utils import logsumexp
from torch import Tensor, nn

from sl_core.checks import require

ROWS_AT_ONCE = 1024


class AnchorLosses(NamedTuple):
    """The two parts of the loss of each anchor of a batch, and the pairs that they are of.

    Attributes:
        positive: (B,) xi+, at least 0; 0 for an anchor without positive pairs.
        negative: (B,) xi-, likewise.
        positive_pairs: (B, B) bool, anchor by positive.
        negative_pairs: (B, B) bool, anchor by negative.
    """

    positive: Tensor
    negative: Tensor
    positive_pairs: Tensor
    negative_pairs: Tensor


class WeightedMultiSimilarityLoss(nn.Module):
    """Equation 7: the mean over a batch of the multi-similarity losses of its anchors, weighted.

    With the informative positives P and negatives N of anchor i, and cosine similarities S::

        xi+_i = 1/alpha log(1 + sum over p in P of exp(-alpha (S_ip - rho)))
        xi-_i = 1/beta  log(1 + sum over n in N of exp(beta (S_in - rho)))
        loss  = mean over i of w_i (mean of w over P  xi+_i + mean of w over N  xi-_i)

    All weights 1 give pytorch-metric-learning's MultiSimilarityLoss with MultiSimilarityMiner. (The
    paper's text has |P|^alpha for what can only be |P| alpha.)

    Args:
        alpha: above 0.
        beta: above 0.
        base: rho.
        epsilon: margin of the mining. A negative is informative if S_in > min over positives - eps
            (equation 4), a positive if S_ip < max over negatives + eps (equation 5), so an anchor
            that lacks one kind in the batch has no informative pairs at all. None takes all pairs.
    """

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 50.0,
        base: float = 1.0,
        epsilon: float | None = 0.1,
    ) -> None:
        super().__init__()
        require(alpha > 0, "alpha", alpha, "a number above 0")
        require(beta > 0, "beta", beta, "a number above 0")
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.epsilon = epsilon
        self.miner = None if epsilon is None else MultiSimilarityMiner(epsilon)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        options = (self.alpha, self.beta, self.base, self.epsilon)
        return "alpha={}, beta={}, base={}, epsilon={}".format(*options)

    def forward(self, embeddings: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar.

        Args:
            embeddings: (B, D), of any length above 0.
            labels: (B,)
            weights: (B,) in [0, 1]; None means 1 for all.
        """
        losses = self.anchor_losses(embeddings, labels)
        weights = torch.ones_like(losses.positive) if weights is None else weights.to(embeddings)
        partners = (
            _mean_where(losses.positive_pairs, weights) * losses.positive
            + _mean_where(losses.negative_pairs, weights) * losses.negative
        )
        return (weights * partners).mean()

    def anchor_losses(self, embeddings: Tensor, labels: Tensor) -> AnchorLosses:
        """xi+ and xi- of each anchor of a batch; arguments as in ``forward``."""
        unit = F.normalize(embeddings, dim=1)
        if self.miner is None:
            same = labels[:, None] == labels
            positive, negative = same & ~torch.eye(len(same), device=same.device).bool(), ~same
        else:
            positive, negative = (
                torch.zeros(len(unit), len(unit), dtype=torch.bool, device=unit.device)
                for _ in range(2)
            )
            anchors, partners, other_anchors, others = self.miner(embeddings, labels)
            positive[anchors, partners] = True
            negative[other_anchors, others] = True
        losses = self._pair_sums(unit @ unit.T, positive, negative)
        return AnchorLosses(*losses, positive, negative)

    @torch.no_grad()
    def data_set_losses(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """xi+ and xi- of each sample against all others (equation 3), without mining.

        Args:
            embeddings: (N, D) of the whole training set. The (N, N) similarities are computed a
                block of rows at a time.
            labels: (N,)

        Returns:
            Two of shape (N,).
        """
        unit = F.normalize(embeddings, dim=1)
        parts = []
        for start in range(0, len(unit), ROWS_AT_ONCE):
            rows = torch.arange(start, min(start + ROWS_AT_ONCE, len(unit)), device=unit.device)
            same = labels[rows, None] == labels
            is_other = rows[:, None] != torch.arange(len(unit), device=unit.device)
            parts.append(self._pair_sums(unit[rows] @ unit.T, same & is_other, ~same))
        positive, negative = zip(*parts, strict=True)
        return torch.cat(positive), torch.cat(negative)

    def _pair_sums(
        self, similarities: Tensor, positive: Tensor, negative: Tensor
    ) -> tuple[Tensor, Tensor]:
        """xi+ and xi-, (R,), from the similarities and pairs of R anchors to all, (R, N)."""
        pull = logsumexp(self.alpha * (self.base - similarities), keep_mask=positive)
        push = logsumexp(self.beta * (similarities - self.base), keep_mask=negative)
        return pull.squeeze(1) / self.alpha, push.squeeze(1) / self.beta


def _mean_where(pairs: Tensor, weights: Tensor) -> Tensor:
    """The mean weight of each anchor's partners: (B,), 0 without partners."""
    chosen = pairs.to(weights)
    return chosen @ weights / chosen.sum(1).clamp(min=1)

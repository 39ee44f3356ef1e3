"""A drop-in for cirtorch's criteria whose pair or triplet losses are weighted one by one."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from sl_core import build_loss
from sl_retrieval.pair_losses import contrastive_losses, triplet_losses

DEFAULT_MARGINS = {"contrastive": 0.7, "triplet": 0.1}
# Losses that weight a pair by something other than its labels and logits.
WRAPPERS = ("none", "superloss")
# Losses of the probability p = exp(-l) that a pair's label is right; the weight stays finite as
# the loss falls to 0. With imae and gr it would grow as 1 / (1 - p), so they are not offered.
PROBABILITY_LOSSES = ("cce", "mae", "gce", "gce_trunc")
ROBUST_NAMES = WRAPPERS + PROBABILITY_LOSSES
POSITIVE, NEGATIVE = 0, 1
PAIRS = ("all", "positive")


class LossOfProbability(nn.Module):
    """A classification loss over pairs: a loss l is taken as -log p of the pair's own label.

    Called like SuperLoss. The weight of a pair, the derivative by l, is 1 for cce, 2 p for mae,
    p^q for gce.

    Args:
        name: one of PROBABILITY_LOSSES.
        options: of ``build_loss``.

    Attributes:
        confidence: the weights of the latest batch, 0 for masked samples; None before.
    """

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.loss = build_loss(name, reduction="none", **options)
        self.confidence: Tensor | None = None

    def forward(
        self, loss: Tensor, groups: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Sum over the unmasked losses (P,), which are at least 0."""
        with torch.enable_grad():
            leaf = loss.detach().float().clamp(min=1e-6).requires_grad_()
            value = self._of_probability(leaf)
            (weight,) = torch.autograd.grad(value.sum(), leaf)
        weight = weight if mask is None else weight.masked_fill(~mask, 0)
        value = value.detach() if mask is None else value.detach().masked_fill(~mask, 0)
        self.confidence = weight
        # The weight is the exact derivative, so that this has the value and the gradient.
        return (weight * (loss - loss.detach()) + value).sum()

    def _of_probability(self, loss: Tensor) -> Tensor:
        logits = torch.stack((-loss, torch.log(-torch.expm1(-loss))), dim=-1)
        value: Tensor = self.loss(logits, torch.zeros_like(loss, dtype=torch.long))
        return value


class RobustCriterion(nn.Module):
    """Contrastive or triplet loss with the signature of cirtorch, robust to wrong labels.

    Called with x (D x N) and label (-1 query, 1 positive, 0 negative, tuple after tuple), returns
    the sum over pairs or triplets. With ``name="none"`` it is cirtorch's loss; in evaluation mode
    and under ``torch.no_grad`` too, so that losses of the validation compare between methods.

    Pairs whose loss is exactly 0 (negatives beyond the margin) teach nothing and do not enter the
    thresholds; they would draw tau to 0 and make every other negative look hard.

    Args:
        loss: contrastive or triplet.
        margin: None means cirtorch's: 0.7 for contrastive, 0.1 for triplet.
        name: robust loss, one of ROBUST_NAMES.
        separate: whether positive and negative pairs have a threshold each (SuperLoss with the
            contrastive loss). Their losses have different ranges.
        pairs: "all", or "positive" to leave the negative pairs of the contrastive loss as they
            are, with a weight of 1. With C landmarks a wrong label makes every positive pair of an
            image wrong, but of its negative pairs only about one in C.
        options: of ``build_loss``, such as tau and lam.

    Attributes:
        confidence: weights of the latest batch's pairs or triplets, in the order of x; 0 where
            the loss is 0. None before the first call.
    """

    def __init__(
        self,
        loss: str = "contrastive",
        margin: float | None = None,
        name: str = "superloss",
        *,
        separate: bool = True,
        pairs: str = "all",
        **options: Any,
    ) -> None:
        super().__init__()
        if pairs not in PAIRS:
            raise ValueError(f"pairs is {pairs!r}, expected one of {', '.join(PAIRS)}")
        if loss not in DEFAULT_MARGINS:
            raise ValueError(f"loss is {loss!r}, expected one of {', '.join(DEFAULT_MARGINS)}")
        if name not in ROBUST_NAMES:
            raise ValueError(
                f"robust loss is {name!r}, expected one of {', '.join(ROBUST_NAMES)}: "
                "others need logits or an unbounded weight"
            )
        self.loss = loss
        self.margin = DEFAULT_MARGINS[loss] if margin is None else margin
        self.only_positive = pairs == "positive" and loss == "contrastive"
        self.separate = (
            separate and loss == "contrastive" and name == "superloss" and not self.only_positive
        )
        if self.separate:
            options["num_groups"] = 2
        self._plain: Tensor | None = None  # 1 for pairs of the latest batch outside ``robust``
        self.robust: nn.Module = (
            build_loss(name, reduction="sum", **options)
            if name in WRAPPERS
            else LossOfProbability(name, **options)
        )

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        """The weighted sum over pairs or triplets; outside training the plain sum."""
        losses, groups = self.losses_and_groups(x, label)
        # cirtorch validates under no_grad and leaves its criterion in training mode.
        if not self.training or not torch.is_grad_enabled():
            return losses.sum()
        weighted = groups == POSITIVE if self.only_positive else torch.ones_like(losses).bool()
        total: Tensor = self.robust(
            losses, groups if self.separate else None, weighted & (losses > 0)
        )
        plain = losses.masked_fill(weighted, 0)
        self._plain = (plain > 0).to(losses.dtype)
        return total + plain.sum()

    def losses_and_groups(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Plain losses of pairs or triplets (P,), and their kinds: POSITIVE or NEGATIVE."""
        if self.loss == "triplet":
            losses = triplet_losses(x.float(), label, self.margin)
            return losses, torch.full_like(losses, POSITIVE, dtype=torch.long)
        losses, is_positive = contrastive_losses(x.float(), label, self.margin)
        return losses, torch.where(is_positive, POSITIVE, NEGATIVE)

    @property
    def confidence(self) -> Tensor | None:
        """See the class."""
        weights = cast("Tensor | None", self.robust.confidence)
        return None if weights is None or self._plain is None else weights + self._plain

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"loss={self.loss}, margin={self.margin:g}"

"""SuperLoss for the losses of pytorch-metric-learning, as a reducer."""

import logging
from typing import Any

from pytorch_metric_learning.reducers import BaseReducer
from torch import Tensor

from sl_core import SuperLoss

logger = logging.getLogger(__name__)


class SuperLossReducer(BaseReducer):
    """Weights every element, pair or triplet loss by SuperLoss and takes the mean.

    ``ContrastiveLoss(reducer=SuperLossReducer(tau="expavg", lam=0.05))``. The loss keeps a copy of
    the reducer for each of its parts, so positive and negative pairs have their own thresholds;
    they are part of the loss's state dict. Losses that are exactly 0 teach nothing: they enter
    neither the thresholds nor the mean (as with pytorch-metric-learning's AvgNonZeroReducer).

    A loss that reduces itself, such as HistogramLoss, cannot be weighted: it is passed on as it
    is, with a warning at the first time.

    Args:
        tau: as in ``sl_core.SuperLoss``.
        lam: as in ``sl_core.SuperLoss``.
        superloss_options: other options of ``SuperLoss``, such as momentum or warmup_steps.
        base: arguments of pytorch-metric-learning's reducers.

    Attributes:
        confidence: (in ``superloss``) the weights of the latest batch.
    """

    def __init__(
        self,
        tau: float | str = "expavg",
        lam: float | str = 1.0,
        superloss_options: dict[str, Any] | None = None,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        options = {"reduction": "mean", **(superloss_options or {})}
        self.superloss = SuperLoss(tau, lam, **options)
        self._has_warned = False

    def element_reduction(self, losses: Tensor, *_: Any, **__: Any) -> Tensor:
        """Weighted mean; some losses give (B, 1)."""
        return self._weighted(losses)

    def pos_pair_reduction(self, losses: Tensor, *_: Any, **__: Any) -> Tensor:
        """Weighted mean over positive pairs."""
        return self._weighted(losses)

    def neg_pair_reduction(self, losses: Tensor, *_: Any, **__: Any) -> Tensor:
        """Weighted mean over negative pairs."""
        return self._weighted(losses)

    def triplet_reduction(self, losses: Tensor, *_: Any, **__: Any) -> Tensor:
        """Weighted mean over triplets."""
        return self._weighted(losses)

    def already_reduced_reduction(self, losses: Tensor, *arguments: Any, **options: Any) -> Tensor:
        """The loss as it is."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "SuperLossReducer got a loss that is already reduced to one number, which has no "
                "samples to weight; it is used as it is"
            )
        reduced: Tensor = super().already_reduced_reduction(losses, *arguments, **options)
        return reduced

    def _weighted(self, losses: Tensor) -> Tensor:
        flat = losses.flatten()
        total: Tensor = self.superloss(flat, mask=flat != 0)
        return total

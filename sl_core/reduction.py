"""The one place where per-sample losses become a scalar."""

from torch import Tensor

from sl_core.checks import require
from sl_core.lambert import compute_dtype

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> str:
    """Return ``reduction``, or raise ValueError with the known ones."""
    require(reduction in REDUCTIONS, "reduction", reduction, f"one of {', '.join(REDUCTIONS)}")
    return reduction


def reduce_losses(losses: Tensor, reduction: str, mask: Tensor | None = None) -> Tensor:
    """Reduce per-sample losses; an empty batch gives a zero that still has a graph.

    Args:
        losses: any shape.
        reduction: none, mean or sum.
        mask: bool, shape of ``losses``; the mean is over True ones. The caller has set the
            losses of the others to 0.
    """
    if check_reduction(reduction) == "none":
        return losses
    if reduction == "sum" or losses.numel() == 0:
        return losses.sum()
    if mask is None:
        return losses.mean()
    # The sum of many half-precision losses overflows where their mean does not.
    total = losses.sum(dtype=compute_dtype(losses.dtype))
    return (total / mask.sum().clamp(min=1)).to(losses.dtype)

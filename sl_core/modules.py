"""Thin modules over the per-sample losses: they hold options and parameters, and reduce."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sl_core.checks import check_options, require
from sl_core.confidence_losses import multitask_loss
from sl_core.lambert import compute_dtype
from sl_core.reduction import check_reduction, reduce_losses


class PerSampleLoss(nn.Module):
    """A per-sample loss function with fixed options, reduced.

    Args:
        function: a loss of ``sl_core`` such as ``gce_loss``, called with the inputs of forward.
        reduction: none, mean or sum.
        options: keyword arguments of the function, such as ``q=0.7``.
    """

    def __init__(
        self, function: Callable[..., Tensor], reduction: str = "mean", **options: float
    ) -> None:
        super().__init__()
        check_options(**options)
        self.function = function
        self.reduction = check_reduction(reduction)
        self.options = options

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the function, then reduce."""
        return reduce_losses(self.function(*inputs, **self.options), self.reduction)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        shown: dict[str, Any] = {**self.options, "reduction": self.reduction}
        listed = (f"{name}={value}" for name, value in shown.items())
        return ", ".join((self.function.__name__, *listed))


class PlainLoss(nn.Module):
    """The losses as they are; is called like SuperLoss, so that it can stand in for it.

    Attributes:
        confidence: 1 for every sample of the latest batch, 0 for masked ones; None before.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)
        self.confidence: Tensor | None = None

    def forward(
        self, loss: Tensor, groups: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Reduce per-sample losses of any shape; ``groups`` makes no difference."""
        self.confidence = torch.ones_like(
            loss, dtype=compute_dtype(loss.dtype), requires_grad=False
        )
        if mask is not None:
            loss = loss.masked_fill(~mask, 0)
            self.confidence.masked_fill_(~mask, 0)
        return reduce_losses(loss, self.reduction, mask)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"reduction={self.reduction}"


class MultiTaskLoss(nn.Module):
    """``multitask_loss`` with a learned log variance for each task, 0 at the start.

    Args:
        num_tasks: number of task losses.
        reduction: none, mean or sum; the paper's objective is the sum.
    """

    def __init__(self, num_tasks: int, reduction: str = "sum") -> None:
        super().__init__()
        require(num_tasks >= 1, "num_tasks", num_tasks, "at least 1")
        self.reduction = check_reduction(reduction)
        self.log_variance = nn.Parameter(torch.zeros(num_tasks))

    def forward(self, losses: Tensor) -> Tensor:
        """Task losses (num_tasks,), at least 0, to the reduced loss."""
        return reduce_losses(multitask_loss(losses, self.log_variance), self.reduction)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"num_tasks={len(self.log_variance)}, reduction={self.reduction}"

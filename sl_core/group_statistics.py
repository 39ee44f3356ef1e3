"""Sums over groups of samples, the same on every process of a distributed run."""

import torch
import torch.distributed as dist
from torch import Tensor


def group_sums(values: Tensor, groups: Tensor | None, valid: Tensor, num_groups: int) -> Tensor:
    """Sum and number of the valid values of each group, over all processes.

    In a distributed run this is a collective call: every process must make it, also one whose
    batch is empty.

    Args:
        values: (N,) floats; invalid ones may be anything, nan included.
        groups: (N,) integers in [0, num_groups); None puts all into group 0.
        valid: (N,) bool.
        num_groups: number of groups G.

    Returns:
        (2, G) in the dtype of ``values``, float64 in a distributed run: sums, then numbers.
    """
    values = torch.where(valid, values.detach(), 0)
    if groups is None:
        sums = torch.stack((values.sum(), valid.sum())).reshape(2, 1)
    else:
        sums = values.new_zeros(2, num_groups)
        sums[0].index_add_(0, groups, values)
        sums[1].index_add_(0, groups, valid.to(values.dtype))
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        # Numbers stay exact in float64 up to 2^53, in float32 only up to 2^24.
        sums = sums.double()
        dist.all_reduce(sums)
    return sums

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
        (2, G) in float64 (float32 on MPS, which has no float64): sums, then numbers.
    """
    values = torch.where(valid, values.detach(), 0)
    # A float32 sum over the anchors of a batch is off in the second digit, since index_add adds
    # one value after the other, and counts no further than 2^24.
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    if groups is None:
        sums = torch.stack((values.sum(dtype=wide), valid.sum(dtype=wide))).unsqueeze(1)
    else:
        sums = values.new_zeros(2, num_groups, dtype=wide)
        sums[0].index_add_(0, groups, values.to(wide))
        sums[1].index_add_(0, groups, valid.to(wide))
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(sums)
    return sums

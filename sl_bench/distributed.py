"""What a run over several processes needs; everything also works without a process group."""

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn


def start_from_torchrun(device: torch.device) -> None:
    """Join the process group of torchrun, if it started more than one process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def stop() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def local_rank() -> int:
    """Number of this process on its machine, as torchrun tells it."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_processes(tensor: Tensor) -> Tensor:
    """The sum over all processes, on the tensor's own device."""
    if world_size() == 1:
        return tensor
    total = _on_backend(tensor).clone()
    dist.all_reduce(total)
    return total.to(tensor.device)


def gather(tensor: Tensor) -> Tensor:
    """The tensors of all processes, which have the same shape (B, ...), one after the other."""
    if world_size() == 1:
        return tensor
    here = _on_backend(tensor).contiguous()
    everywhere = [torch.empty_like(here) for _ in range(world_size())]
    dist.all_gather(everywhere, here)
    return torch.cat(everywhere).to(tensor.device)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add up the gradients of all processes, each of a sum divided by the size of the whole batch.

    With this and not the mean of DistributedDataParallel, N processes equal one.
    """
    if world_size() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(
        gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True
    ):
        gradient.copy_(part.view_as(gradient))


def _on_backend(tensor: Tensor) -> Tensor:
    """NCCL only takes tensors of the GPU."""
    return tensor.cuda() if dist.get_backend() == "nccl" else tensor

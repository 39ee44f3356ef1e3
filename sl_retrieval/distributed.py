"""What data-parallel training needs from torch.distributed; one process without a group works."""

import datetime
import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor


def start_from_torchrun(device: torch.device) -> None:
    """Join the process group that torchrun's environment describes, if there is one."""
    if (
        "WORLD_SIZE" not in os.environ
        or int(os.environ["WORLD_SIZE"]) == 1
        or dist.is_initialized()
    ):
        return
    # A warm-up runs on one process while the others wait.
    timeout = datetime.timedelta(days=2)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timeout)


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_processes(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all processes, on its own device."""
    if not dist.is_initialized():
        return tensor
    # NCCL reduces on the GPU only.
    total = tensor.cuda() if dist.get_backend() == "nccl" else tensor.clone()
    dist.all_reduce(total)
    return total.to(tensor.device)


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace every gradient by its sum over all processes.

    The losses are sums over pairs, so the sum (not DistributedDataParallel's mean) makes N
    processes equal one with N times the batch.
    """
    if not dist.is_initialized():
        return
    parameters = [p for p in parameters if p.requires_grad]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    dist.all_reduce(flat)
    parts = flat.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        assert parameter.grad is not None
        parameter.grad.copy_(part.view_as(parameter))


def gather_parts(parts: dict[int, Tensor], count: int) -> list[Tensor]:
    """Collect numbered tensors that lie spread over the processes.

    Args:
        parts: this process's tensors by number; every number from 0 to count - 1 lies on exactly
            one process.
        count: of all tensors.

    Returns:
        All of them in order, on every process, on the CPU.
    """
    everywhere: list[dict[int, Tensor]] = [parts]
    if dist.is_initialized():
        everywhere = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(everywhere, {n: part.cpu() for n, part in parts.items()})
    joined = {number: part.cpu() for some in everywhere for number, part in some.items()}
    return [joined[number] for number in range(count)]


def share_state(module: torch.nn.Module) -> None:
    """Give the first process's parameters and buffers to all."""
    if dist.is_initialized():
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)


def stop() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def barrier() -> None:
    """Wait for all processes."""
    if dist.is_initialized():
        dist.barrier()

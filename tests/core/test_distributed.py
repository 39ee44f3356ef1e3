"""Two gloo processes hold the same tau as one process with the joined batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from sl_core import SuperLoss

WORLD_SIZE = 2
POLICIES: list[dict[str, Any]] = [
    {"tau": "avg", "lam": 0.25},
    {"tau": "expavg", "lam": 0.25},
    {"tau": "expavg", "lam": "auto"},
    {"tau": 0.7, "lam": "auto"},
]


def batch(step: int, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, groups and mask of one rank; sizes differ, and in step 2 rank 1 has nothing."""
    size = 0 if (step, rank) == (2, 1) else 5 + 3 * rank + step
    generator = torch.Generator().manual_seed(10 * step + rank)
    loss = 4 * torch.rand(size, generator=generator)
    if size:
        loss[0] = float("nan") if step == 1 else loss[0]
    groups = torch.randint(0, 3, (size,), generator=generator)
    return loss, groups, torch.rand(size, generator=generator) > 0.2


def states_of(module: SuperLoss) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def train_on_one_rank(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD_SIZE
    )
    results = []
    for options in POLICIES:
        module = SuperLoss(num_groups=3, reduction="none", **options)
        values = []
        for step in range(4):
            values.append(module(*batch(step, rank)))
        results.append((states_of(module), values))
    torch.save(results, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder: Path = tmp_path_factory.mktemp("distributed")
    mp.spawn(train_on_one_rank, args=(str(folder),), nprocs=WORLD_SIZE)
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(WORLD_SIZE)]


@pytest.mark.parametrize("policy", range(len(POLICIES)), ids=[str(p) for p in POLICIES])
def test_two_processes_equal_one_with_the_joined_batch(ranks: list[Any], policy: int) -> None:
    alone = SuperLoss(num_groups=3, reduction="none", **POLICIES[policy])
    for step in range(4):
        parts = [batch(step, rank) for rank in range(WORLD_SIZE)]
        loss, groups, mask = (torch.cat(columns) for columns in zip(*parts, strict=True))
        joined = alone(loss, groups, mask)
        found = torch.cat([ranks[rank][policy][1][step] for rank in range(WORLD_SIZE)])
        torch.testing.assert_close(found, joined, equal_nan=True)
    (first, _), (second, _) = (ranks[rank][policy] for rank in range(WORLD_SIZE))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(first, states_of(alone), rtol=1e-6, atol=1e-6)

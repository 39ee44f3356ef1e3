"""Nothing may leave the device: values are unknown under FakeTensorMode, so a look at one fails."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from sl_core import SuperLoss, build_loss, lambertw, optimal_confidence, super_loss

Run = Callable[[Tensor], Tensor]


def with_module(**options: object) -> Run:
    module = SuperLoss(**options)  # type: ignore[arg-type]

    def run(loss: Tensor) -> Tensor:
        groups = None if module.num_groups == 1 else (loss > 1).long()
        value: Tensor = module(loss, groups, loss < 4)
        return value

    return run


def with_logits(name: str) -> Run:
    module = build_loss(name)

    def run(loss: Tensor) -> Tensor:
        logits = torch.stack((loss, loss * 0.5, -loss), dim=-1)
        value: Tensor = module(logits, (loss > 1).long())
        return value

    return run


RUNS: dict[str, Callable[[], Run]] = {
    "lambertw": lambda: lambertw,
    "super_loss": lambda: lambda loss: super_loss(loss, 1.0, 0.25),
    "optimal_confidence": lambda: lambda loss: optimal_confidence(loss, 1.0, 0.25),
    "fixed": lambda: with_module(tau=1.0),
    "avg": lambda: with_module(tau="avg", num_groups=2),
    "expavg": lambda: with_module(tau="expavg", warmup_steps=3),
    "auto": lambda: with_module(lam="auto", num_groups=2),
    **{
        name: lambda name=name: with_logits(name)  # type: ignore[misc]
        for name in ("cce", "mae", "gce", "gce_trunc", "imae", "gr")
    },
}
runs = pytest.mark.parametrize("make", RUNS.values(), ids=RUNS.keys())


@runs
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_runs_forward_and_backward_on_fake_tensors(
    make: Callable[[], Run], dtype: torch.dtype
) -> None:
    with FakeTensorMode():
        loss = torch.rand(16, dtype=dtype, requires_grad=True)
        value = make()(loss)
        assert value.dtype == dtype
        if value.requires_grad:
            value.sum().backward()
            assert loss.grad is not None


def test_fake_tensors_do_catch_a_look_at_a_value() -> None:
    with FakeTensorMode(), pytest.raises(Exception, match="scalar_dense"):
        torch.rand(3).sum().item()


@runs
def test_compiles_to_one_graph_with_the_same_result(make: Callable[[], Run]) -> None:
    """aot_eager traces forward and backward like the full compiler, but needs no C++ compiler."""
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(0)
    eager, compiled = make(), torch.compile(make(), fullgraph=True, backend="aot_eager")
    for _ in range(3):
        loss = 5 * torch.rand(32, generator=generator)
        results = []
        for run in (eager, compiled):
            leaf = loss.clone().requires_grad_()
            value = run(leaf)
            if value.requires_grad:
                value.sum().backward()
            results.append((value.detach(), leaf.grad))
        torch.testing.assert_close(results[0], results[1])

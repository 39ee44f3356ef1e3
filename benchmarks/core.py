"""Speed of the core against its peers, as ratios within one run on one thread.

    python benchmarks/core.py --output output/benchmarks/core.json

Each row is the fastest of several repetitions, taken in turns so that all rows see the same
machine. "error" is the largest relative error of the confidence against float64.
"""

import argparse
import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import lambertw as scipy_lambertw
from torch import Tensor

from sl_core import SuperLoss, lambertw, optimal_confidence, super_loss

TAU, LAM = 1.0, 0.25
TABLE_SIZE, TABLE_END = 4096, 60.0


def scipy_confidence(loss: Tensor) -> Tensor:
    """Confidence by the round trip through numpy that AlanChou/Super-Loss and CurML make."""
    beta = np.maximum(-2 / np.e + 1e-12, (loss.detach().cpu().numpy() - TAU) / LAM)
    return torch.from_numpy(np.exp(-scipy_lambertw(beta / 2).real).astype(np.float32))


def confidence_table() -> Tensor:
    """Confidence at TABLE_SIZE evenly spaced values of beta from -2/e to TABLE_END."""
    beta = torch.linspace(-2 / math.e, TABLE_END, TABLE_SIZE, dtype=torch.float64)
    return optimal_confidence(beta, 0.0, 1.0).float().reshape(1, 1, 1, -1)


def table_confidence(loss: Tensor, table: Tensor) -> Tensor:
    """Confidence by linear interpolation with grid_sample, as the authors of SuperLoss do."""
    beta = (loss.detach() - TAU) / LAM
    position = (beta + 2 / math.e) * (2 / (TABLE_END + 2 / math.e)) - 1
    grid = torch.stack((position, torch.zeros_like(position)), -1).reshape(1, 1, -1, 2)
    return F.grid_sample(table, grid, padding_mode="border", align_corners=True).reshape(-1)


def from_confidence(confidence: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """SuperLoss of a batch from a function that gives the confidence."""

    def mean_loss(loss: Tensor) -> Tensor:
        sigma = confidence(loss)
        return ((loss - TAU) * sigma + LAM * sigma.log() ** 2).mean()

    return mean_loss


def forward_backward(function: Callable[[Tensor], Tensor], loss: Tensor) -> Callable[[], None]:
    """One training step's use of a loss function."""

    def step() -> None:
        loss.grad = None
        function(loss).backward()

    return step


def fastest(rows: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Milliseconds of the fastest repetition of each row, after one that does not count."""
    best = dict.fromkeys(rows, math.inf)
    for repetition in range(repetitions + 1):
        for name, function in rows.items():
            start = time.perf_counter()
            function()
            if repetition:
                best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def largest_error(found: Tensor, loss: Tensor) -> float:
    """Largest relative error of confidences against their computation in float64."""
    exact = optimal_confidence(loss.detach().double(), TAU, LAM)
    return (found.double() / exact - 1).abs().max().item()


def main(output: Path, count: int = 1_000_000, repetitions: int = 10) -> dict[str, object]:
    """Measure, print a table, and write JSON."""
    torch.set_num_threads(1)
    loss = (10 * torch.rand(count, generator=torch.Generator().manual_seed(0))).requires_grad_()
    z = loss.detach() - 1 / math.e
    table = confidence_table()
    module, per_class = SuperLoss("expavg", LAM), SuperLoss("expavg", LAM, num_groups=20)
    automatic = SuperLoss("expavg", "auto", num_groups=20)
    classes = torch.arange(count) * 7919 % 20
    forms: dict[str, Callable[[Tensor], Tensor]] = {
        "super_loss, fixed tau": lambda x: super_loss(x, TAU, LAM).mean(),
        "SuperLoss, expavg": module,
        "SuperLoss, expavg per class": lambda x: per_class(x, classes),
        "SuperLoss, expavg, auto per class": lambda x: automatic(x, classes),
        "grid_sample table": from_confidence(lambda x: table_confidence(x, table)),
        "scipy round trip": from_confidence(scipy_confidence),
    }
    functions: dict[str, Callable[[], object]] = {
        "torch.exp": lambda: torch.exp(z),
        "lambertw": lambda: lambertw(z),
        "scipy.special.lambertw": lambda: scipy_lambertw(z.numpy()),
    }
    if shutil.which("c++"):
        compiled_w, compiled_loss = torch.compile(lambertw), torch.compile(super_loss)
        functions["lambertw, torch.compile"] = lambda: compiled_w(z)
        forms["super_loss, torch.compile"] = lambda x: compiled_loss(x, TAU, LAM).mean()
    steps = {name: forward_backward(form, loss) for name, form in forms.items()}
    times = fastest({**functions, **steps}, repetitions)
    errors = {
        "super_loss, fixed tau": largest_error(optimal_confidence(loss.detach(), TAU, LAM), loss),
        "grid_sample table": largest_error(table_confidence(loss, table), loss),
        "scipy round trip": largest_error(scipy_confidence(loss), loss),
    }
    print(f"{count:,} float32 numbers, one thread, fastest of {repetitions}")
    for title, names, peer in (
        ("W(z)", functions, "scipy.special.lambertw"),
        ("SuperLoss, forward and backward", steps, "scipy round trip"),
    ):
        print(f"\n{title:36}{'ms':>9}{'x torch.exp':>13}{'speed-up on scipy':>19}{'error':>10}")
        for name in sorted(names, key=lambda name: times[name]):
            error = f"{errors[name]:.0e}" if name in errors else ""
            floor, gain = times[name] / times["torch.exp"], times[peer] / times[name]
            print(f"{name:36}{times[name]:9.2f}{floor:13.1f}{gain:19.1f}{error:>10}")
    result = {"count": count, "milliseconds": times, "errors": errors, "torch": torch.__version__}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("output/benchmarks/core.json"))
    parser.add_argument("--count", type=int, default=1_000_000, help="how many numbers")
    parser.add_argument("--repetitions", type=int, default=10)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

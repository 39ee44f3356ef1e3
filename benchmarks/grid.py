"""Grids of trainings: as processes, a few at a time, continued where they stopped."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Training:
    """One call of a tool.

    Attributes:
        folder: where it writes; its console goes to console.txt there.
        tool: file of ``tools``.
        arguments: of the tool.
        result: the file in ``folder`` that is there only when the training is done.
        environment: variables, (name, value).
    """

    folder: Path
    tool: str
    arguments: tuple[str, ...]
    result: str = "results.json"
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether it has written its result."""
        return (self.folder / self.result).exists()


def run_training(training: Training) -> None:
    """Run in a process of one thread unless it is done; RuntimeError names the log if it fails."""
    if training.is_done:
        return
    training.folder.mkdir(parents=True, exist_ok=True)
    call = [sys.executable, str(ROOT / "tools" / training.tool), *training.arguments]
    threads = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **threads, **dict(training.environment)}
    console = training.folder / "console.txt"
    with console.open("w") as log:
        done = subprocess.run(call, stdout=log, stderr=subprocess.STDOUT, env=environment)
    if done.returncode or not training.is_done:
        raise RuntimeError(f"{training.folder.name} failed; see {console}")


def run_grid(
    trainings: Sequence[Training], jobs: int, table: Callable[[], str], file: Path
) -> None:
    """Run what is missing, ``jobs`` at a time; whenever one is done, write the table to a file."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_training, training) for training in trainings]
        for future in tqdm(as_completed(futures), total=len(futures), unit="run"):
            try:
                future.result()
            except RuntimeError:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            file.write_text(table() + "\n", encoding="utf-8")


def mean_and_deviation(values: Sequence[float], form: str = ".1f") -> str:
    """``mean ± deviation`` over seeds (n - 1), the mean alone of one, nothing of none."""
    if not values:
        return ""
    mean = format(float(np.mean(values)), form)
    return f"{mean} ± {format(float(np.std(values, ddof=1)), form)}" if len(values) > 1 else mean


def markdown_table(corner: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table of ready cells."""
    lines = [f"| {corner} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {title} | {' | '.join(cells)} |" for title, cells in rows.items()]
    return "\n".join(lines)

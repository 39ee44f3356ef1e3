"""Classification and regression under label noise: tables of docs/results-bench.md, with seeds.

    python -m benchmarks.label_noise mnist_regression --data datasets/mnist
    python -m benchmarks.label_noise fashion --data datasets/fashion_mnist --seeds 0

--data is the folder of the four idx files. Runs tools/train_bench.py with the configs
configs/bench/<experiment>_*.yaml, two at a time, one thread each. What is finished is not run again
and what was killed goes on, so an interrupted call is continued by the same call. Prints mean and
deviation and writes results.json and results.md beside the runs.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.grid import ROOT, Training, markdown_table, mean_and_deviation, run_grid
from sl_core.json_files import write_json

CONFIGS = ROOT / "configs" / "bench"
Result = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A family of configs at some rates of noise.

    Attributes:
        methods: of <family>_<method>.yaml.
        rates: of wrong labels, in percent.
        metrics: name of a table to the number of a result that it shows; None leaves it empty.
        form: of these numbers.
    """

    methods: tuple[str, ...]
    rates: tuple[int, ...]
    metrics: dict[str, Callable[[Result], float | None]]
    form: str


def _percent(key: str) -> Callable[[Result], float | None]:
    return lambda result: 100 * result[key] if result.get(key) is not None else None


EXPERIMENTS = {
    "mnist_regression": Experiment(
        ("smooth_l1_baseline", "smooth_l1_superloss", "l2_baseline", "l2_superloss"),
        (0, 20, 40, 60, 80),
        {
            "mean absolute error, last epoch": lambda result: result["test_mae_final"],
            "truncated error, last epoch": lambda result: result["test_truncated_error_final"],
        },
        ".3f",
    ),
    "fashion": Experiment(
        ("cce", "mae", "gce", "imae", "gr", "superloss_logc", "superloss_avg", "superloss_expavg"),
        (20, 40, 60, 80),
        {
            "test accuracy, last epoch": _percent("test_accuracy_final"),
            "test accuracy, best epoch": _percent("test_accuracy_best"),
            "wrong labels that are fitted": _percent("fit_of_wrong_labels"),
            "right labels that are fitted": _percent("fit_of_right_labels"),
        },
        ".1f",
    ),
}


@dataclass(frozen=True)
class Run:
    """One training."""

    family: str
    method: str
    rate: int
    seed: int

    def folder(self, output: Path) -> Path:
        """Where it writes."""
        return output / f"{self.method}_{self.rate}_s{self.seed}"

    def training(self, data: Path, output: Path, options: Sequence[str]) -> Training:
        """The call that makes it."""
        folder = self.folder(output)
        config = CONFIGS / f"{self.family}_{self.method}.yaml"
        own = ("OUTPUT_DIR", str(folder), "SEED", str(self.seed), "DATASET.ROOT", str(data))
        rate = ("NOISE.RATE", f"{self.rate / 100}")
        arguments = ("--config-file", str(config), "--resume", *own, *rate, *options)
        return Training(folder, "train_bench.py", arguments, result="result.json")


def tables(runs: Sequence[Run], experiment: Experiment, output: Path) -> str:
    """A Markdown table for each metric: mean and deviation over the seeds that are finished."""
    rates = sorted({run.rate for run in runs})
    parts = []
    for title, value in experiment.metrics.items():
        cells: dict[str, list[str]] = {}
        for method in dict.fromkeys(run.method for run in runs):
            cells[method] = []
            for rate in rates:
                files = [
                    run.folder(output) / "result.json"
                    for run in runs
                    if (run.method, run.rate) == (method, rate)
                ]
                found = [value(json.loads(f.read_text())) for f in files if f.exists()]
                known = [number for number in found if number is not None]
                cells[method].append(mean_and_deviation(known, experiment.form))
        parts.append(markdown_table(title, [f"{rate} %" for rate in rates], cells))
    return "\n\n".join(parts)


def main(
    experiment: str,
    data: Path,
    output: Path,
    rates: Sequence[int] = (),
    seeds: Sequence[int] = (0, 1, 2),
    jobs: int = 2,
    options: Sequence[str] = (),
) -> None:
    """Run what is missing, then print and write the tables."""
    chosen = EXPERIMENTS[experiment]
    output = (output / experiment).resolve()
    output.mkdir(parents=True, exist_ok=True)
    runs = [
        Run(experiment, method, rate, seed)
        for seed in seeds
        for rate in rates or chosen.rates
        for method in chosen.methods
    ]
    trainings = [run.training(data.resolve(), output, options) for run in runs]
    run_grid(trainings, jobs, lambda: tables(runs, chosen, output), output / "results.md")
    results = {
        run.folder(output).name: json.loads((run.folder(output) / "result.json").read_text())
        for run in runs
    }
    write_json(output / "results.json", results)
    print(tables(runs, chosen, output))


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("experiment", choices=list(EXPERIMENTS))
    add("--data", type=Path, required=True, help="folder of the idx files")
    add("--output", type=Path, default=Path("output/label_noise"))
    add("--rates", type=int, nargs="+", default=[], help="in percent; all of the experiment")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add("--jobs", type=int, default=2, help="trainings at a time, one thread each")
    add("--options", nargs="+", default=[], help="config options, such as DATASET.TRAIN_SIZE 5000")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

"""Metric learning on handwritten characters with wrong labels: five methods, three rates, seeds.

    python -m benchmarks.omniglot --data my/data --output output/omniglot
    python -m benchmarks.omniglot --data my/data --methods ms bspml --rates 40 --seeds 0

--data is the folder that has omniglot_small/images_background_small1 and ..._small2. Trains on
small1, tests on the alphabets of small2 that small1 does not have. Runs tools/train_metric.py two
at a time, one thread each, 60 to 90 seconds a run. What is finished is not run again and what was
killed goes on, so an interrupted call is continued by the same call. Prints mean and deviation of
Recall@1 and NMI, in percent, and writes results.json and results.md beside the runs.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.grid import ROOT, Training, markdown_table, mean_and_deviation, run_grid
from sl_core.json_files import write_json
from sl_retrieval.metric_methods import METHODS

RATES = (0, 20, 40)
METRICS = {"Recall@1": "recall@1", "NMI": "nmi"}


@dataclass(frozen=True)
class Run:
    """One training."""

    method: str
    rate: int
    seed: int

    def folder(self, output: Path) -> Path:
        """Where it writes."""
        return output / f"{self.method}_{self.rate}_s{self.seed}"


def training(run: Run, data: Path, output: Path) -> Training:
    """The call that makes a run; what was killed goes on."""
    folder = run.folder(output)
    config = ROOT / "configs" / "retrieval" / "metric" / f"omniglot_{run.method}.yaml"
    name = "omniglot_small1" + (f"_sym{run.rate}_s{run.seed}" if run.rate else "")
    options = ("OUTPUT_DIR", str(folder), "DATASETS.TRAIN", name, "SEED", str(run.seed))
    arguments = ("--config-file", str(config), "--resume", *options)
    root = (("RETRIEVAL_DATASETS", str(data.resolve())),)
    return Training(folder, "train_metric.py", arguments, environment=root)


def table(runs: Sequence[Run], output: Path) -> str:
    """The finished runs as a Markdown table: mean and deviation over seeds, in percent."""
    rates = sorted({run.rate for run in runs})
    columns = [(metric, rate) for metric in METRICS for rate in rates]
    cells: dict[str, list[str]] = {}
    for method in dict.fromkeys(run.method for run in runs):
        cells[method] = []
        for metric, rate in columns:
            files = [
                run.folder(output) / "results.json"
                for run in runs
                if (run.method, run.rate) == (method, rate)
            ]
            found = [json.loads(f.read_text())[METRICS[metric]] for f in files if f.exists()]
            cells[method].append(mean_and_deviation([100 * value for value in found]))
    return markdown_table("method", [f"{metric}, {rate} %" for metric, rate in columns], cells)


def main(
    data: Path,
    output: Path,
    methods: Sequence[str] = METHODS,
    rates: Sequence[int] = RATES,
    seeds: Sequence[int] = (0, 1, 2),
    jobs: int = 2,
) -> None:
    """Run what is missing, then print and write the table."""
    runs = [Run(method, rate, seed) for seed in seeds for rate in rates for method in methods]
    output.mkdir(parents=True, exist_ok=True)
    trainings = [training(run, data, output) for run in runs]
    run_grid(trainings, jobs, lambda: table(runs, output), output / "results.md")
    results = {
        run.folder(output).name: json.loads((run.folder(output) / "results.json").read_text())
        for run in runs
    }
    write_json(output / "results.json", results)
    print(table(runs, output))


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of omniglot_small")
    parser.add_argument("--output", type=Path, default=Path("output/omniglot"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="in percent")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, one thread each")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

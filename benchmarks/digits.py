"""Digit scenes under label noise: every row of docs/results-digits.md, with seeds.

    python -m benchmarks.digits --output output/digits             # about an hour on two cores
    python -m benchmarks.digits --output output/digits --only 40   # rows at 40 % noise only

Runs tools/train_net.py two at a time, one thread each. What is finished is not run again, so an
interrupted call is continued by the same call. Prints mean and deviation of AP50 and writes
results.json and results.md beside the runs.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.grid import ROOT, Training, markdown_table, mean_and_deviation, run_grid
from sl_core.json_files import write_json

FASTER, RETINANET = "digits_faster_rcnn_R_18_FPN", "digits_retinanet_R_18_FPN"
RATES = (0, 20, 40, 60)


@dataclass(frozen=True)
class Row:
    """One line of the table: a config at some rates of noise.

    Attributes:
        title: shown in the table.
        config: file of configs/detection without .yaml.
        rates: percentages of wrong labels.
        clean_options: config options at 0 %, where the paper uses another lambda.
    """

    title: str
    config: str
    rates: tuple[int, ...]
    clean_options: tuple[str, ...] = ()


PAPER_CLEAN = ("MODEL.ROBUST_LOSS.CLS.LAMBDA", "1.0")
ROWS = (
    Row("Faster R-CNN, baseline", f"{FASTER}_baseline", RATES),
    Row(
        "Faster R-CNN, paper: all RoIs, tau = log C", f"{FASTER}_superloss_logc", RATES, PAPER_CLEAN
    ),
    Row("Faster R-CNN, ours: foreground, tau per class", f"{FASTER}_grouped", RATES),
    Row("RetinaNet, baseline", f"{RETINANET}_baseline", (40,)),
    Row("RetinaNet, paper: all anchors, tau = avg", f"{RETINANET}_superloss_avg", (40,)),
    Row("RetinaNet, ours: foreground, own tau", f"{RETINANET}_grouped", (40,)),
    Row("Faster R-CNN, GR, foreground", f"{FASTER}_gr", (40,)),
    Row("Faster R-CNN, IMAE, foreground", f"{FASTER}_imae", (40,)),
    Row("Faster R-CNN, GCE, foreground", f"{FASTER}_gce", (40,)),
)


@dataclass(frozen=True)
class Run:
    """One training."""

    row: Row
    rate: int
    seed: int

    def folder(self, output: Path) -> Path:
        """Where it writes."""
        return output / f"{self.row.config}_{self.rate}_s{self.seed}"


def training(run: Run, output: Path) -> Training:
    """The call that makes a run."""
    folder = run.folder(output)
    config = ROOT / "configs" / "detection" / f"{run.row.config}.yaml"
    data = "digits_train" if run.rate == 0 else f"digits_train_sym{run.rate}_s{run.seed}"
    options = ("OUTPUT_DIR", str(folder), "DATASETS.TRAIN", f"('{data}',)", "SEED", str(run.seed))
    clean = run.row.clean_options if run.rate == 0 else ()
    return Training(folder, "train_net.py", ("--config-file", str(config), *options, *clean))


def table(runs: Sequence[Run], output: Path) -> str:
    """The finished runs as a Markdown table: AP50, mean and deviation over seeds."""
    cells: dict[str, list[str]] = {}
    for row in dict.fromkeys(run.row for run in runs):
        cells[row.title] = []
        for rate in RATES:
            files = [
                run.folder(output) / "results.json"
                for run in runs
                if (run.row, run.rate) == (row, rate)
            ]
            values = [json.loads(f.read_text())["bbox"]["AP50"] or 0 for f in files if f.exists()]
            cells[row.title].append(mean_and_deviation(values))
    return markdown_table("AP50", [f"{rate} %" for rate in RATES], cells)


def main(
    output: Path, seeds: Sequence[int] = (0, 1, 2), only: Sequence[int] = RATES, jobs: int = 2
) -> None:
    """Run what is missing, then print and write the table."""
    rows = [(row, rate) for row in ROWS for rate in row.rates if rate in only]
    runs = [Run(row, rate, seed) for seed in seeds for row, rate in rows]
    output.mkdir(parents=True, exist_ok=True)
    trainings = [training(run, output) for run in runs]
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
    parser.add_argument("--output", type=Path, default=Path("output/digits"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", type=int, nargs="+", default=list(RATES), help="rates in percent")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, one thread each")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

"""Metric learning on handwritten characters with wrong labels: five methods, three rates, seeds.

    python benchmarks/omniglot.py --data my/data --output output/omniglot
    python benchmarks/omniglot.py --data my/data --methods ms bspml --rates 40 --seeds 0

--data is the folder that has omniglot_small/images_background_small1 and ..._small2. Trains on
small1, tests on the alphabets of small2 that small1 does not have. Runs tools/train_metric.py two
at a time, one thread each, 60 to 90 seconds a run. What is finished is not run again and what was
killed goes on, so an interrupted call is continued by the same call. Prints mean and deviation of
Recall@1 and NMI, in percent, and writes results.json and results.md beside the runs.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from sl_core.json_files import write_json
from sl_retrieval.metric_methods import METHODS

ROOT = Path(__file__).parents[1]
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


def train(run: Run, data: Path, output: Path) -> None:
    """Train and evaluate unless that is done; raises RuntimeError with the log's name."""
    folder = run.folder(output)
    if (folder / "results.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    config = ROOT / "configs" / "retrieval" / "metric" / f"omniglot_{run.method}.yaml"
    name = "omniglot_small1" + (f"_sym{run.rate}_s{run.seed}" if run.rate else "")
    call = [sys.executable, str(ROOT / "tools" / "train_metric.py"), "--config-file", str(config)]
    call += ["--resume", "OUTPUT_DIR", str(folder), "DATASETS.TRAIN", name, "SEED", str(run.seed)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "RETRIEVAL_DATASETS": str(data.resolve()),
    }
    with (folder / "console.txt").open("w") as console:
        done = subprocess.run(call, stdout=console, stderr=subprocess.STDOUT, env=environment)
    if done.returncode:
        raise RuntimeError(f"{folder.name} failed; see {folder / 'console.txt'}")


def table(runs: Sequence[Run], output: Path) -> str:
    """The finished runs as a Markdown table: mean and deviation over seeds, in percent."""
    rates = sorted({run.rate for run in runs})
    heads = [f"{metric}, {rate} %" for metric in METRICS for rate in rates]
    lines = ["| method | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for method in dict.fromkeys(run.method for run in runs):
        cells = []
        for key in METRICS.values():
            for rate in rates:
                files = [
                    run.folder(output) / "results.json"
                    for run in runs
                    if (run.method, run.rate) == (method, rate)
                ]
                values = [100 * json.loads(f.read_text())[key] for f in files if f.exists()]
                deviation = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
                cells.append(f"{np.mean(values):.1f}{deviation}" if values else "")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(train, run, data, output) for run in runs]
        for future in tqdm(as_completed(futures), total=len(futures), unit="run"):
            future.result()
            (output / "results.md").write_text(table(runs, output) + "\n", encoding="utf-8")
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

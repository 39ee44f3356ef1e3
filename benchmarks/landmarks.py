"""Retrieval under label noise: the tables of docs/results-retrieval.md, with seeds.

    python -m benchmarks.landmarks --data ../shared/data/landmarks10   # real pictures
    python -m benchmarks.landmarks                                     # procedural landmarks

Every seed and rate of noise has one start (a warm-up), from which baseline and SuperLoss go on with
the same data, tuples and seed: tools/train_retrieval.py, two at a time, one thread each. What is
finished is not run again, so an interrupted call is continued by the same call. Prints mean and
deviation of the mAP after the last epoch and writes results.json and results.md beside the runs.

The folder of real pictures has jpg/, images.csv (image, landmark, split: train or val),
gnd_<folder>.json (queries and database, from val) and openset_split.json: closed trains on all
landmarks; open trains on its train_landmarks and has the queries of its test_landmarks, which the
network has never seen, against the whole database.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.grid import ROOT, Training, markdown_table, mean_and_deviation, run_grid
from sl_core.json_files import write_json

CONFIGS = ROOT / "configs" / "retrieval"
RATES = (0, 40)
METHODS = ("start", "baseline", "superloss")


@dataclass(frozen=True)
class Experiment:
    """A training set and what it is tested on.

    Attributes:
        name: shown in the table.
        family: of configs: <family>_baseline, <family>_superloss.
        train: data set; noise is added to its name.
        test: data set.
        options: of every training.
    """

    name: str
    family: str
    train: str
    test: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One training; the start of a seed and rate is a training too."""

    experiment: Experiment
    method: str
    rate: int
    seed: int

    def folder(self, output: Path) -> Path:
        """Where it writes."""
        return output / f"{self.experiment.name}_{self.method}_{self.rate}_s{self.seed}"

    def training(self, output: Path) -> Training:
        """The call that makes it."""
        noise = f"_sym{self.rate}_s{self.seed}" if self.rate else ""
        start = Run(self.experiment, "start", self.rate, self.seed).folder(output)
        options = {
            "OUTPUT_DIR": str(self.folder(output)),
            "SEED": str(self.seed),
            "DATASETS.TRAIN": self.experiment.train + noise,
            "DATASETS.VAL": "",
            "DATASETS.TEST": f"['{self.experiment.test}']",
        }
        if self.method == "start":
            options["SOLVER.EPOCHS"] = "0"
        else:
            options |= {"MODEL.WEIGHTS": str(start / "model_best.pth.tar"), "WARMUP.EPOCHS": "0"}
        pairs = [part for pair in options.items() for part in pair]
        method = "baseline" if self.method == "start" else self.method
        config = CONFIGS / f"{self.experiment.family}_{method}.yaml"
        arguments = ("--config-file", str(config), *self.experiment.options, *pairs)
        return Training(self.folder(output), "train_retrieval.py", arguments)

    def mean_average_precision(self, output: Path) -> float | None:
        """In percent; None as long as it is not done."""
        file = self.folder(output) / "results.json"
        if not file.exists():
            return None
        return float(100 * json.loads(file.read_text())[self.experiment.test]["all"]["map"])


def real_experiments(data: Path, output: Path) -> list[Experiment]:
    """Closed and open set of a folder of pictures; lists and ground truth go below ``output``."""
    with (data / "images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    landmark_of = {row["image"]: row["landmark"] for row in rows}
    split = json.loads((data / "openset_split.json").read_text())
    truth = json.loads((data / f"gnd_{data.name}.json").read_text())
    experiments = []
    for name, landmarks in (("closed", sorted(set(landmark_of.values()))), ("open", None)):
        trained = landmarks or split["train_landmarks"]
        tested = landmarks or split["test_landmarks"]
        folder = output / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "jpg").exists():
            (folder / "jpg").symlink_to((data / "jpg").resolve())
        listed = [
            f"{row['image']},{row['landmark']}"
            for row in rows
            if row["split"] == "train" and row["landmark"] in trained
        ]
        (folder / "train.csv").write_text("\n".join(["image,label", *listed]) + "\n")
        kept = [q for q, query in enumerate(truth["qimlist"]) if landmark_of[query] in tested]
        of_queries = {key: [truth[key][q] for q in kept] for key in ("qimlist", "gnd")}
        write_json(folder / f"gnd_{name}.json", truth | of_queries)
        lists = [[f"{name}_train", str(folder / "train.csv"), str(folder / "jpg")]]
        options = ("DATASETS.LISTS", str(lists), "DATASETS.DATA_ROOT", str(output / "data"))
        experiments.append(Experiment(name, "from_scratch", f"{name}_train", name, options))
    return experiments


def table(runs: Sequence[Run], output: Path) -> str:
    """mAP of the finished runs, mean and deviation over seeds."""
    columns = list(dict.fromkeys((run.experiment.name, run.rate) for run in runs))
    cells: dict[str, list[str]] = {}
    for method in METHODS:
        cells[method] = []
        for column in columns:
            found = [
                run.mean_average_precision(output)
                for run in runs
                if run.method == method and (run.experiment.name, run.rate) == column
            ]
            cells[method].append(mean_and_deviation([v for v in found if v is not None]))
    return markdown_table("mAP", [f"{name}, {rate} %" for name, rate in columns], cells)


def main(
    output: Path,
    data: Path | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    only: Sequence[int] = RATES,
    jobs: int = 2,
) -> None:
    """Run what is missing, then print and write the table."""
    output = (output / (data.name if data else "procedural")).resolve()
    experiments = (
        real_experiments(data, output)
        if data
        else [Experiment("procedural", "procedural", "procedural_train", "procedural_test")]
    )
    output.mkdir(parents=True, exist_ok=True)
    cells = [(e, rate, seed) for seed in seeds for e in experiments for rate in only]
    starts = [Run(e, "start", rate, seed) for e, rate, seed in cells]
    others = [Run(e, m, rate, seed) for e, rate, seed in cells for m in METHODS[1:]]
    runs = [*starts, *others]
    for group in (starts, others):
        trainings = [run.training(output) for run in group]
        run_grid(trainings, jobs, lambda: table(runs, output), output / "results.md")
    maps = {run.folder(output).name: run.mean_average_precision(output) for run in runs}
    write_json(output / "results.json", maps)
    print(table(runs, output))


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, help="folder of real pictures; without it, procedural landmarks")
    add("--output", type=Path, default=Path("output/landmarks"))
    add("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add("--only", type=int, nargs="+", default=list(RATES), help="rates of noise in percent")
    add("--jobs", type=int, default=2, help="trainings at a time, one thread each")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

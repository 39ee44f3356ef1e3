"""Train a retrieval network with 40 % of its labels wrong, with and without us.

Both trainings begin with the same weights, made by a warm-up on other, rightly labelled landmarks.
They run at the same time, as tools/train_retrieval.py with the configs of the baseline and of
SuperLoss, on the same noisy data set with the same seed. Prints a table and writes map.png,
results.png and results.json.

    python tools/demo_retrieval.py --output output/demo/retrieval
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image, ImageDraw
from tqdm import tqdm

from sl_core.json_files import write_json
from sl_retrieval.builders import register_builtin
from sl_retrieval.checkpoint import load_network
from sl_retrieval.config import load_config
from sl_retrieval.engine import BEST, LAST
from sl_retrieval.evaluation import Extraction, describe_set, evaluate_set
from sl_retrieval.result_pictures import draw_results, spread_queries

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs" / "retrieval"
METHODS = {"baseline": "baseline", "SuperLoss": "superloss"}
COLOURS = {"baseline": "#d1495b", "SuperLoss": "#00798c"}
SHOWN_QUERIES, SHOWN_RESULTS = 5, 7


def make_start(output: Path, seed: int, options: Sequence[str]) -> Path:
    """Warm a network up on all cores, with its progress on the console; returns its checkpoint."""
    folder = output / "start"
    shutil.rmtree(folder, ignore_errors=True)
    call = _call("procedural_baseline", folder, seed, options)
    call += ["SOLVER.EPOCHS", "0", "DATASETS.TEST", "['procedural_val']"]
    if subprocess.run(call, env=_environment()).returncode:
        raise SystemExit("the warm-up failed; its messages are above")
    return folder / BEST


def train(output: Path, dataset: str, start: Path, seed: int, options: Sequence[str]) -> None:
    """Run both trainings side by side, one thread each, and show their progress."""
    processes = {}
    for name, method in METHODS.items():
        folder = output / method
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        call = _call(f"procedural_{method}", folder, seed, options)
        call += ["DATASETS.TRAIN", dataset, "MODEL.WEIGHTS", str(start), "WARMUP.EPOCHS", "0"]
        with (folder / "console.txt").open("w") as console:
            processes[name] = subprocess.Popen(
                call, stdout=console, stderr=subprocess.STDOUT, env=_environment(threads=1)
            )
    epochs = load_config(CONFIGS / "procedural_baseline.yaml", list(options)).SOLVER.EPOCHS
    with tqdm(total=epochs, unit="epoch", desc="training both") as progress:
        while any(process.poll() is None for process in processes.values()):
            progress.update(min(len(_history(output / m)) for m in METHODS.values()) - progress.n)
            time.sleep(1)
    for name, process in processes.items():
        if process.returncode:
            log = output / METHODS[name] / "console.txt"
            raise SystemExit(f"training of {name} failed; see {log}")


def draw_map(output: Path, start: float, file: Path, rate: float) -> None:
    """mAP on the validation landmarks after each epoch, from the common start."""
    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, method in METHODS.items():
        values = [100 * row["val_map"] for row in _history(output / method) if "val_map" in row]
        points = (range(len(values) + 1), [100 * start, *values])
        ax.plot(*points, "o-", color=COLOURS[name], linewidth=2, markersize=4, label=name)
    ax.axhline(100 * start, color="black", linewidth=0.8, linestyle=":", label="start")
    ax.set(xlabel="epoch", ylabel="mAP on validation landmarks")
    ax.set_title(f"Training with {rate:.0%} wrong labels")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def draw_queries(output: Path, file: Path, dataset: str) -> None:
    """The same queries and their nearest images by both networks, one below the other."""
    extraction = _extraction("procedural_baseline")
    sets = {
        name: describe_set(load_network(output / m / LAST), dataset, Path(), extraction)
        for name, m in METHODS.items()
    }
    precision = evaluate_set(sets["baseline"])["all"]["per_query"]["ap"]
    queries = spread_queries(precision, SHOWN_QUERIES)
    parts = [draw_results(described, queries, SHOWN_RESULTS) for described in sets.values()]
    page = Image.new("RGB", (parts[0].width, sum(p.height + 22 for p in parts)), "white")
    pen = ImageDraw.Draw(page)
    top = 0
    for name, part in zip(sets, parts, strict=True):
        pen.text((8, top + 8), f"{name}: right results green, wrong ones red", "black")
        page.paste(part, (0, top + 22))
        top += part.height + 22
    page.save(file)


def main(
    output: Path, rate: float = 0.4, seed: int = 0, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Train, print the table, write the pictures and results.json."""
    output.mkdir(parents=True, exist_ok=True)
    register_builtin()
    dataset = f"procedural_train_sym{round(100 * rate)}_s{seed}"
    print("a start for both: classification of other landmarks, about 2 minutes on two cores")
    start = make_start(output, seed, options)
    print(f"training both on {dataset}: about 2 minutes, logs in {output}")
    train(output, dataset, start, seed, options)
    start_map = _map(output / "start", "procedural_val")
    results: dict[str, Any] = {"dataset": dataset, "seed": seed, "start_val_map": start_map}
    print(f"\n{rate:.0%} wrong labels, tested on views of other landmarks, rightly labelled")
    print(f"{'':12}{'mAP':>8}{'mP@1':>8}{'mP@10':>8}{'wrong labels found':>22}")
    for name, method in METHODS.items():
        metrics = json.loads((output / method / "results.json").read_text())["procedural_test"]
        row = {key: metrics["all"][key] for key in ("map", "mp@1", "mp@10")}
        row["wrong_found"] = _history(output / method)[-1]["wrong_among_least_confident"]
        results[name] = row
        numbers = "".join(f"{100 * row[key]:8.1f}" for key in ("map", "mp@1", "mp@10"))
        print(f"{name:12}{numbers}{100 * row['wrong_found']:20.1f} %")
    print("wrong labels found: part of the least confident images whose label is wrong\n")
    write_json(output / "results.json", results)
    draw_map(output, start_map, output / "map.png", rate)
    draw_queries(output, output / "results.png", "procedural_test")
    print(f"pictures: {output / 'map.png'}, {output / 'results.png'}")
    return results


def _call(config: str, folder: Path, seed: int, options: Sequence[str]) -> list[str]:
    tool, file = ROOT / "tools" / "train_retrieval.py", CONFIGS / f"{config}.yaml"
    call = [sys.executable, str(tool), "--config-file", str(file), *options]
    return [*call, "OUTPUT_DIR", str(folder), "SEED", str(seed)]


def _environment(threads: int | None = None) -> dict[str, str]:
    limit = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {**os.environ, "PYTHONPATH": str(ROOT), **limit}


def _extraction(config: str) -> Extraction:
    cfg = load_config(CONFIGS / f"{config}.yaml", [])
    return Extraction(cfg.INPUT.IMAGE_SIZE, cfg.TEST.SCALES, cfg.TEST.BATCH_SIZE)


def _history(folder: Path) -> list[dict[str, Any]]:
    file = folder / "metrics.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return rows


def _map(folder: Path, dataset: str) -> float:
    return float(json.loads((folder / "results.json").read_text())[dataset]["all"]["map"])


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path("output/demo/retrieval"), help="folder to write"
    )
    parser.add_argument("--rate", type=float, default=0.4, help="part of labels that is wrong")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("options", nargs="*", help="config options for all three trainings")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

"""Train a detector on digit scenes of which 40 % of the labels are wrong, with and without us.

Both trainings run at the same time, as tools/train_net.py with the configs of the baseline and of
the grouped SuperLoss, on the same noisy data set with the same seed. Prints a table and writes
detections.png, confidence.png and results.json.

    python tools/demo_detection.py --output output/demo/detection
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from detectron2.config import get_cfg
from detectron2.data import DatasetCatalog
from detectron2.data.detection_utils import read_image
from detectron2.engine import DefaultPredictor
from detectron2.utils.file_io import PathManager
from tqdm import tqdm

from sl_core.json_files import write_json
from sl_detectron import add_robust_loss_config, merge_options
from sl_detectron.digit_scenes import register_digit_scenes

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

ROOT = Path(__file__).parents[1]
METHODS = {"baseline": "baseline", "SuperLoss (grouped)": "grouped"}
RIGHT, WRONG = "#2a9d4a", "#d1495b"
SHOWN_SCENES = 6


def train(output: Path, dataset: str, seed: int, options: Sequence[str]) -> None:
    """Run both trainings side by side, one thread each, and show their progress."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    processes = {}
    for name, method in METHODS.items():
        config = ROOT / "configs" / "detection" / f"digits_faster_rcnn_R_18_FPN_{method}.yaml"
        folder = output / method
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").unlink(missing_ok=True)
        call = [sys.executable, str(ROOT / "tools" / "train_net.py"), "--config-file", str(config)]
        call += ["OUTPUT_DIR", str(folder), "DATASETS.TRAIN", f"('{dataset}',)", "SEED", str(seed)]
        with (folder / "console.txt").open("w") as console:
            processes[name] = subprocess.Popen(
                [*call, *options], stdout=console, stderr=subprocess.STDOUT, env=environment
            )
    with tqdm(total=_max_iter(config, options), unit="it", desc="training both") as progress:
        while any(process.poll() is None for process in processes.values()):
            done = [_iterations(output / method) for method in METHODS.values()]
            progress.update(min(done) - progress.n)
            time.sleep(1)
    for name, process in processes.items():
        if process.returncode:
            log = output / METHODS[name] / "console.txt"
            raise SystemExit(f"training of {name} failed; see {log}")


def wrong_among_least_confident(folder: Path) -> float:
    """Of the K least confident annotations, K the number of wrong ones: percentage of wrong."""
    rows = json.loads((folder / "annotation_confidence.json").read_text())
    wrong = [bool(row["wrong"]) for row in rows]
    return 100 * sum(wrong[: sum(wrong)]) / max(sum(wrong), 1)


def draw_detections(output: Path, file: Path) -> None:
    """Scenes of the test set with the detections of both, right classes green, wrong ones red."""
    register_digit_scenes()
    scenes = DatasetCatalog.get("digits_test")
    busy = [scene for scene in scenes if len(scene["annotations"]) >= 3][:SHOWN_SCENES]
    figure, axes = plt.subplots(
        len(METHODS), len(busy), figsize=(2.2 * len(busy), 5), layout="constrained"
    )
    for row, (name, method) in zip(axes, METHODS.items(), strict=True):
        predictor = _predictor(output / method)
        for ax, scene in zip(row, busy, strict=True):
            image = read_image(scene["file_name"], "BGR")
            ax.imshow(image[:, :, ::-1])
            ax.set(xticks=[], yticks=[], xlim=(0, image.shape[1]), ylim=(image.shape[0], 0))
            _draw_boxes(ax, predictor(image)["instances"].to("cpu"), scene["annotations"])
        row[0].set_ylabel(name, fontsize=11)
    figure.suptitle(
        "Most certain detection of every digit in clean test scenes: class right (green) or wrong"
    )
    figure.savefig(file, dpi=130)
    plt.close(figure)


def draw_confidence(folder: Path, file: Path, rate: float) -> None:
    """Confidence of annotations with right and with wrong labels over the training."""
    lines = [json.loads(line) for line in (folder / "metrics.json").read_text().splitlines()]
    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, colour in (("right", RIGHT), ("wrong", WRONG)):
        key = f"sl/confidence_{name}_labels"
        points = [(line["iteration"], line[key]) for line in lines if key in line]
        ax.plot(*zip(*points, strict=True), color=colour, linewidth=2, label=f"{name} labels")
    ax.axhline(1, color="black", linewidth=0.8, linestyle=":")
    ax.set(xlabel="iteration", ylabel="mean confidence", ylim=(0, None))
    ax.set_title(f"Training with {rate:.0%} wrong labels: SuperLoss stops believing them")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def main(
    output: Path, rate: float = 0.4, seed: int = 0, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Train, print the table, write the pictures and results.json."""
    output.mkdir(parents=True, exist_ok=True)
    dataset = f"digits_train_sym{round(100 * rate)}_s{seed}"
    print(f"training both on {dataset}: about 3 minutes on two cores, logs in {output}")
    train(output, dataset, seed, options)
    results: dict[str, Any] = {"dataset": dataset, "seed": seed}
    print(f"\n{rate:.0%} wrong labels, tested on clean scenes")
    print(f"{'':22}{'AP':>8}{'AP50':>8}{'AP75':>8}{'wrong labels found':>22}")
    for name, method in METHODS.items():
        folder = output / method
        box = json.loads((folder / "results.json").read_text())["bbox"]
        results[name] = {key: box[key] for key in ("AP", "AP50", "AP75")}
        found = "-"
        if method != "baseline":
            results[name]["wrong_found"] = wrong_among_least_confident(folder)
            found = f"{results[name]['wrong_found']:.1f} %"
        numbers = "".join(f"{box[key] or 0:8.1f}" for key in ("AP", "AP50", "AP75"))
        print(f"{name:22}{numbers}{found:>22}")
    print("wrong labels found: part of the least confident annotations whose label is wrong\n")
    write_json(output / "results.json", results)
    draw_detections(output, output / "detections.png")
    draw_confidence(output / "grouped", output / "confidence.png", rate)
    print(f"pictures: {output / 'detections.png'}, {output / 'confidence.png'}")
    return results


def _max_iter(config: Path, options: Sequence[str]) -> int:
    cfg = get_cfg()
    add_robust_loss_config(cfg)
    cfg.merge_from_file(str(config))
    merge_options(cfg, list(options))
    return int(cfg.SOLVER.MAX_ITER)


def _iterations(folder: Path) -> int:
    file = folder / "metrics.json"
    lines = file.read_text().splitlines() if file.exists() else []
    return int(json.loads(lines[-1])["iteration"]) + 1 if lines else 0


def _predictor(folder: Path) -> DefaultPredictor:
    cfg = get_cfg()
    add_robust_loss_config(cfg)
    cfg.merge_from_file(str(folder / "config.yaml"))
    cfg.MODEL.WEIGHTS = PathManager.get_local_path(str(folder / "model_final.pth"))
    return DefaultPredictor(cfg)


def _draw_boxes(ax: Any, detections: Any, annotations: list[dict[str, Any]]) -> None:
    """The most certain detection of every digit."""
    boxes = detections.pred_boxes.tensor.tolist()
    scores, labels = detections.scores.tolist(), detections.pred_classes.tolist()
    for annotation in annotations:
        on_it = [i for i, box in enumerate(boxes) if _overlap(box, annotation["bbox"]) >= 0.5]
        if not on_it:
            continue
        best = max(on_it, key=lambda i: scores[i])
        colour = RIGHT if labels[best] == annotation["category_id"] else WRONG
        x0, y0, x1, y1 = boxes[best]
        ax.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, color=colour, lw=1.8))
        text = f"{labels[best]}: {scores[best]:.0%}"
        place = {"fc": colour, "ec": "none", "pad": 1}
        ax.text(x0 + 1, y0 + 1, text, bbox=place, color="white", fontsize=8, va="top")


def _overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes."""
    sides = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return float(sides.prod() / (sum(areas) - sides.prod()))


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path("output/demo/detection"), help="folder to write"
    )
    parser.add_argument("--rate", type=float, default=0.4, help="part of labels that is wrong")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("options", nargs="*", help="config options for both, such as SEED 1")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

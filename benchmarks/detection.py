"""What the wrapper costs: a training step with and without it, as a ratio within one run.

    python benchmarks/detection.py --output output/benchmarks/detection.json

Stock and robust model have the same weights and see the same images in turns.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from detectron2.config import CfgNode, get_cfg
from detectron2.modeling import build_model
from detectron2.structures import Boxes, Instances
from detectron2.utils.events import EventStorage

from sl_detectron import add_robust_loss_config

CONFIGS = Path(__file__).parents[1] / "configs" / "detection"
DETECTORS = {
    "Faster R-CNN R50-FPN": (
        "voc_faster_rcnn_R_50_FPN",
        "MODEL.ROI_HEADS.NAME",
        "StandardROIHeads",
    ),
    "RetinaNet R50-FPN": ("voc_retinanet_R_50_FPN", "MODEL.META_ARCHITECTURE", "RetinaNet"),
}


def config(name: str, *options: str) -> CfgNode:
    """One of our configs, on the CPU and without weights."""
    cfg = get_cfg()
    add_robust_loss_config(cfg)
    cfg.merge_from_file(str(CONFIGS / f"{name}.yaml"))
    cfg.merge_from_list(["MODEL.DEVICE", "cpu", "MODEL.WEIGHTS", "", *options])
    return cfg


def random_images(count: int, size: int) -> list[dict[str, Any]]:
    """Images with four annotations each."""
    generator = torch.Generator().manual_seed(0)
    inputs = []
    for _ in range(count):
        corner = torch.rand(4, 2, generator=generator) * size / 2
        instances = Instances((size, size))
        instances.gt_boxes = Boxes(torch.cat((corner, corner + size / 3), dim=1))
        instances.gt_classes = torch.randint(0, 20, (4,), generator=generator)
        instances.gt_ids = torch.arange(4)
        image = torch.rand(3, size, size, generator=generator) * 255
        inputs.append({"image": image, "instances": instances})
    return inputs


def step(model: torch.nn.Module, inputs: list[dict[str, Any]]) -> float:
    """Seconds of one forward and backward."""
    torch.manual_seed(0)
    model.zero_grad()
    start = time.perf_counter()
    with EventStorage(start_iter=1):
        losses: dict[str, torch.Tensor] = model(inputs)
    torch.stack(list(losses.values())).sum().backward()
    return time.perf_counter() - start


def main(output: Path, repetitions: int = 10, size: int = 320) -> dict[str, float]:
    """Measure both detectors, print a table, write JSON."""
    inputs = random_images(2, size)
    ratios = {}
    print(f"{'':24}{'stock':>10}{'robust':>10}{'ratio':>8}   (ms, fastest of {repetitions})")
    for title, (name, key, stock_name) in DETECTORS.items():
        torch.manual_seed(0)
        stock = build_model(config(f"{name}_grouped", key, stock_name)).train()
        robust = build_model(config(f"{name}_grouped")).train()
        robust.load_state_dict(stock.state_dict(), strict=False)
        best = [math.inf, math.inf]
        for repetition in range(repetitions + 1):
            for index, model in enumerate((stock, robust)):
                seconds = step(model, inputs)
                best[index] = min(best[index], seconds) if repetition else math.inf
        ratios[title] = best[1] / best[0]
        print(f"{title:24}{1e3 * best[0]:10.1f}{1e3 * best[1]:10.1f}{ratios[title]:8.3f}")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(ratios, indent=1), encoding="utf-8")
    return ratios


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("output/benchmarks/detection.json"))
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--size", type=int, default=320, help="side of the images in pixels")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

"""Train an image-retrieval network on labels of which some may be wrong.

    python tools/train_retrieval.py --config-file configs/retrieval/procedural_superloss.yaml
    python tools/train_retrieval.py --config-file ... --resume
    python tools/train_retrieval.py --config-file ... --eval-only MODEL.WEIGHTS model_best.pth.tar
    torchrun --nproc-per-node 2 tools/train_retrieval.py --config-file ... SOLVER.BATCH_SIZE 4

Your own pictures, a folder for each landmark, a tenth of them with a wrong label:

    python tools/train_retrieval.py --config-file configs/retrieval/own_folder_superloss.yaml \\
        DATASETS.FOLDERS "[['mine', 'my/pictures']]" DATASETS.TRAIN mine_sym10_s0

A name such as mine_sym10_s0 (data set, kind of noise, percent, seed) is made on sight. OUTPUT_DIR
gets model_last.pth.tar and model_best.pth.tar, which cirtorch can load, metrics.json (a row for
each epoch), label_confidence.json (the images of positive pairs, the least believed label first;
contrastive loss), results.json and TensorBoard's files.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from fvcore.common.config import CfgNode

from sl_core.json_files import write_json
from sl_retrieval import distributed
from sl_retrieval.build import device_from, register_datasets
from sl_retrieval.checkpoint import load_network
from sl_retrieval.config import load_config
from sl_retrieval.engine import BEST, LAST, RetrievalTrainer
from sl_retrieval.evaluation import Extraction, check_test_set, evaluate_network
from sl_retrieval.network import ImageRetrievalNet

logger = logging.getLogger("sl_retrieval")


def main(
    config_file: Path | None, options: list[str], resume: bool = False, eval_only: bool = False
) -> dict[str, Any]:
    """Train unless only evaluation is asked for; evaluate on DATASETS.TEST.

    Returns:
        Data set to protocol to metrics, as in results.json.
    """
    cfg = load_config(config_file, options)
    device = device_from(cfg)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.start_from_torchrun(device)
    output = Path(cfg.OUTPUT_DIR)
    _log_to(output)
    register_datasets(cfg)
    for name in cfg.DATASETS.TEST:
        check_test_set(name, Path(cfg.DATASETS.DATA_ROOT))
    if eval_only:
        network = load_network(_weights_to_evaluate(cfg, output, resume))
    else:
        _refuse_to_overwrite(output, resume)
        trainer = RetrievalTrainer(cfg)
        if resume:
            trainer.resume()
        trainer.train()
        distributed.barrier()
        network = load_network(output / BEST)
    results = _evaluate(cfg, network.to(device), output)
    distributed.stop()
    return results


def _weights_to_evaluate(cfg: CfgNode, output: Path, resume: bool) -> Path:
    """MODEL.WEIGHTS, or the best of OUTPUT_DIR's training with --resume."""
    if resume:
        return output / BEST
    if cfg.MODEL.WEIGHTS in ("none", "torchvision"):
        raise ValueError(
            f"MODEL.WEIGHTS is {cfg.MODEL.WEIGHTS}, expected a checkpoint to evaluate; --resume "
            f"takes {output / BEST}"
        )
    return Path(cfg.MODEL.WEIGHTS)


def _evaluate(cfg: CfgNode, network: ImageRetrievalNet, output: Path) -> dict[str, Any]:
    extraction = Extraction(
        cfg.INPUT.IMAGE_SIZE, cfg.TEST.SCALES, cfg.TEST.BATCH_SIZE, cfg.DATALOADER.NUM_WORKERS
    )
    results: dict[str, Any] = {}
    for name in cfg.DATASETS.TEST:
        root = Path(cfg.DATASETS.DATA_ROOT)
        results[name] = evaluate_network(network, name, root, extraction)
        for protocol, metrics in results[name].items():
            shown = "  ".join(f"{key} {metrics[key]:.4f}" for key in metrics if key != "per_query")
            logger.info("%s %s: %s", name, protocol, shown)
        if distributed.rank() == 0:
            write_json(output / "results.json", results)
    return results


def _refuse_to_overwrite(output: Path, resume: bool) -> None:
    if (output / LAST).exists() and not resume:
        raise ValueError(
            f"{output} holds a training already; --resume goes on with it, OUTPUT_DIR <folder> "
            "starts another"
        )


def _log_to(output: Path) -> None:
    """Log to the console and to log.txt, on the first process only."""
    logger.setLevel(logging.INFO if distributed.rank() == 0 else logging.ERROR)
    if distributed.rank() == 0 and not logger.handlers:
        output.mkdir(parents=True, exist_ok=True)
        form = logging.Formatter("[%(asctime)s] %(message)s", "%H:%M:%S")
        for handler in (logging.StreamHandler(sys.stdout), logging.FileHandler(output / "log.txt")):
            handler.setFormatter(form)
            logger.addHandler(handler)


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config-file", type=Path, help="YAML file; see configs/retrieval")
    parser.add_argument("--resume", action="store_true", help="go on in OUTPUT_DIR")
    parser.add_argument(
        "--eval-only",
        action="store_true",
        help="evaluate the checkpoint MODEL.WEIGHTS, or with --resume the best of OUTPUT_DIR",
    )
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="config keys and values, such as SEED 1"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main(**vars(_parse()))
    except (ValueError, FloatingPointError) as error:
        sys.exit(f"error: {error}")

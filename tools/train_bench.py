"""Train a classifier, or a network that predicts one number, on labels of which some are wrong.

    python tools/train_bench.py                                  scikit-learn's digits, no noise
    python tools/train_bench.py NOISE.KIND sym NOISE.RATE 0.4 LOSS.NAME superloss
    python tools/train_bench.py --config-file configs/bench/<name>.yaml
    python tools/train_bench.py --config-file ... --resume
    python tools/train_bench.py --config-file ... --eval-only MODEL.WEIGHTS model_last.pth
    torchrun --nproc-per-node 2 tools/train_bench.py --config-file ...

Data sets are read from local files, nothing is downloaded:

    python tools/train_bench.py DATASET.NAME mnist DATASET.ROOT my/mnist NOISE.KIND sym \\
        NOISE.RATE 0.4 LOSS.NAME gce
    python tools/train_bench.py TASK regression DATASET.NAME mnist DATASET.ROOT my/mnist \\
        LOSS.INPUT smooth_l1 LOSS.NAME superloss NOISE.KIND uniform NOISE.RATE 0.4

sl_bench/data.py says which files a data set needs, sl_bench/config.py has every key. OUTPUT_DIR
gets model_last.pth, config.yaml, metrics.json (a row for each epoch), result.json (best and final
test accuracy in percent, how well the right and the wrong labels were fitted; for regression
absolute errors) and label_confidence.json (superloss and data_params: the training images, the
least believed label first).
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from fvcore.common.config import CfgNode

from sl_bench import distributed
from sl_bench.config import load_config
from sl_bench.engine import LAST, BenchTrainer, device_from
from sl_core.json_files import write_json

logger = logging.getLogger("sl_bench")


def main(
    config_file: Path | None, options: list[str], resume: bool = False, eval_only: bool = False
) -> dict[str, Any]:
    """Train unless only evaluation is asked for.

    Returns:
        What is in result.json; in evaluation.json if only evaluated.
    """
    cfg = load_config(config_file, options)
    device = device_from(cfg)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.start_from_torchrun(device)
    output = Path(cfg.OUTPUT_DIR)
    _check_request(cfg, output, resume, eval_only)
    _log_to(output)
    trainer = BenchTrainer(cfg)
    if resume:
        trainer.resume()
    result = trainer.evaluate() if eval_only else trainer.train()
    if eval_only and distributed.rank() == 0:
        write_json(output / "evaluation.json", result)
    for key, value in result.items():
        logger.info("%s: %s", key, f"{value:.2f}" if isinstance(value, float) else value)
    distributed.stop()
    return result


def _check_request(cfg: CfgNode, output: Path, resume: bool, eval_only: bool) -> None:
    has_run = (output / LAST).exists()
    if eval_only and resume and not has_run:
        raise ValueError(f"{output / LAST} does not exist, expected a run to evaluate")
    if eval_only and not resume and cfg.MODEL.WEIGHTS == "none":
        raise ValueError(
            f"MODEL.WEIGHTS is none, expected a checkpoint to evaluate; --resume takes "
            f"{output / LAST}"
        )
    if has_run and not resume and not eval_only:
        raise ValueError(
            f"{output} holds a run already; --resume goes on with it, OUTPUT_DIR <folder> starts "
            "another"
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
    parser.add_argument("--config-file", type=Path, help="YAML file; see configs/bench")
    parser.add_argument("--resume", action="store_true", help="go on in OUTPUT_DIR")
    parser.add_argument(
        "--eval-only",
        action="store_true",
        help="evaluate the checkpoint MODEL.WEIGHTS, or with --resume the one of OUTPUT_DIR",
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

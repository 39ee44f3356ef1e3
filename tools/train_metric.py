"""Metric learning with samples weighed by how hard they are: BSPML, and what it is compared with.

    python tools/train_metric.py --config-file configs/retrieval/metric/omniglot_bspml.yaml
    python tools/train_metric.py --config-file ... --resume
    python tools/train_metric.py --config-file ... --eval-only --resume
    python tools/train_metric.py --config-file ... --eval-only MODEL.WEIGHTS some/model_last.pth

METHOD is contrastive, ms (multi-similarity), spms (ms with self-paced weights), bspml (spms, the
weights balanced between classes) or ms_superloss. With 40 % wrong labels, by the name of the set:

    RETRIEVAL_DATASETS=my/data python tools/train_metric.py \\
        --config-file configs/retrieval/metric/omniglot_bspml.yaml \\
        DATASETS.TRAIN omniglot_small1_sym40_s0 OUTPUT_DIR output/bspml_40

Your own pictures, folders of classes; training and test must have different classes:

    python tools/train_metric.py --config-file configs/retrieval/metric/omniglot_bspml.yaml \\
        DATASETS.FOLDERS "[['mine', 'my/train'], ['other', 'my/test']]" \\
        DATASETS.TRAIN mine DATASETS.TEST other

Too many right labels are left out if SELF_PACED.AGE_MAX, about the part of the samples that are
kept, is below the part of right labels; see maw in the history. OUTPUT_DIR gets model_last.pth,
history.json (a row for each epoch: loss, maw, sdaw, age, recall@K, nmi), results.json (Recall@K and
NMI on DATASETS.TEST) and, for spms and bspml, sample_weights.json (all images, the most suspect
label first).
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from fvcore.common.config import CfgNode

from sl_core.json_files import write_json
from sl_retrieval.bspml import LAST, Evaluation, MetricTrainer, load_embedding_network
from sl_retrieval.build import device_from
from sl_retrieval.metric_config import load_metric_config
from sl_retrieval.metric_datasets import register_metric_datasets

logger = logging.getLogger("sl_retrieval")


def main(
    config_file: Path | None, options: list[str], resume: bool = False, eval_only: bool = False
) -> dict[str, float]:
    """Train unless only evaluation is asked for; evaluate the last network on DATASETS.TEST.

    Returns:
        The metrics, as in results.json.
    """
    cfg = load_metric_config(config_file, options)
    output = Path(cfg.OUTPUT_DIR)
    output.mkdir(parents=True, exist_ok=True)
    _log_to(output)
    register_metric_datasets(cfg)
    if eval_only:
        network = load_embedding_network(_weights_to_evaluate(cfg, output, resume))
        evaluation = Evaluation(cfg)
    else:
        _refuse_to_overwrite(output, resume)
        trainer = MetricTrainer(cfg)
        if resume:
            trainer.resume()
        trainer.train()
        network, evaluation = trainer.network, trainer.evaluation
    results = evaluation.run(network.to(device_from(cfg)))
    write_json(output / "results.json", results)
    logger.info("%s", "  ".join(f"{name} {value:.4f}" for name, value in results.items()))
    return results


def _weights_to_evaluate(cfg: CfgNode, output: Path, resume: bool) -> Path:
    """MODEL.WEIGHTS, or the last of OUTPUT_DIR's training with --resume."""
    if resume:
        return output / LAST
    if cfg.MODEL.WEIGHTS in ("none", "torchvision"):
        raise ValueError(
            f"MODEL.WEIGHTS is {cfg.MODEL.WEIGHTS}, expected a checkpoint to evaluate; --resume "
            f"takes {output / LAST}"
        )
    return Path(cfg.MODEL.WEIGHTS)


def _refuse_to_overwrite(output: Path, resume: bool) -> None:
    if (output / LAST).exists() and not resume:
        raise ValueError(
            f"{output} holds a training already; --resume goes on with it, OUTPUT_DIR <folder> "
            "starts another"
        )


def _log_to(output: Path) -> None:
    """Log to the console and to log.txt."""
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        form = logging.Formatter("[%(asctime)s] %(message)s", "%H:%M:%S")
        for handler in (logging.StreamHandler(sys.stdout), logging.FileHandler(output / "log.txt")):
            handler.setFormatter(form)
            logger.addHandler(handler)


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config-file", type=Path, help="YAML file; see configs/retrieval/metric")
    parser.add_argument("--resume", action="store_true", help="go on in OUTPUT_DIR")
    parser.add_argument(
        "--eval-only",
        action="store_true",
        help="evaluate the checkpoint MODEL.WEIGHTS, or with --resume the last of OUTPUT_DIR",
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

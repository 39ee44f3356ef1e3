"""Train or evaluate a detector with robust losses: detectron2's command line, our configs.

    python tools/train_net.py --config-file configs/detection/digits_retinanet_R_18_FPN_grouped.yaml
    python tools/train_net.py --config-file ... --resume
    python tools/train_net.py --config-file ... --eval-only MODEL.WEIGHTS output/model_final.pth
    python tools/train_net.py --config-file ... DATASETS.TRAIN "('digits_train_sym40_s0',)" SEED 0

A data set name such as voc_2007_trainval_sym40_s0 (base, kind of noise, percent, seed) is made on
sight. OUTPUT_DIR gets detectron2's files, results.json and annotation_confidence.json, in which
the annotations come least confident first.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

from detectron2.checkpoint import DetectionCheckpointer
from detectron2.config import CfgNode, get_cfg
from detectron2.data import MetadataCatalog
from detectron2.engine import default_argument_parser, default_setup, launch
from detectron2.utils import comm
from detectron2.utils.logger import setup_logger

from sl_core.json_files import write_json
from sl_detectron import add_robust_loss_config, merge_options
from sl_detectron.engine import RobustTrainer, register_datasets


def setup(arguments: argparse.Namespace) -> CfgNode:
    """The config of a run, with its data sets registered and its loggers set up."""
    cfg = get_cfg()
    add_robust_loss_config(cfg)
    cfg.merge_from_file(arguments.config_file)
    merge_options(cfg, arguments.opts)
    register_datasets(cfg)
    cfg.freeze()
    default_setup(cfg, arguments)
    setup_logger(cfg.OUTPUT_DIR, comm.get_rank(), name="sl_detectron", abbrev_name="sl")
    return cfg


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, or only evaluate; write results.json and return its content."""
    cfg = setup(arguments)
    trainer = None
    if arguments.eval_only:
        model = RobustTrainer.build_model(cfg)
        DetectionCheckpointer(model, save_dir=cfg.OUTPUT_DIR).resume_or_load(
            cfg.MODEL.WEIGHTS, resume=arguments.resume
        )
    else:
        trainer = RobustTrainer(cfg)
        _write_noise(cfg)
        trainer.resume_or_load(resume=arguments.resume)
        trainer.train()
        model = trainer.model
    results: dict[str, Any] | None = getattr(trainer, "_last_eval_results", None)
    if results is None:
        results = RobustTrainer.test(cfg, model)
    if comm.is_main_process():
        write_json(Path(cfg.OUTPUT_DIR) / "results.json", results)
        logging.getLogger("sl_detectron").info("results: %s", results)
    return results


def _write_noise(cfg: CfgNode) -> None:
    """noise.json: the digest of the noisy labels of each training set, to compare with others."""
    digests = {
        name: MetadataCatalog.get(name).get("noise_digest", None) for name in cfg.DATASETS.TRAIN
    }
    if comm.is_main_process():
        write_json(Path(cfg.OUTPUT_DIR) / "noise.json", digests)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """detectron2's arguments."""
    parser: argparse.ArgumentParser = default_argument_parser(epilog=__doc__)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    launch(
        main,
        options.num_gpus,
        num_machines=options.num_machines,
        machine_rank=options.machine_rank,
        dist_url=options.dist_url,
        args=(options,),
    )

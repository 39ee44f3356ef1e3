"""The config node of the plugin: ``MODEL.ROBUST_LOSS``."""

import re

from detectron2.config import CfgNode


def add_robust_loss_config(cfg: CfgNode) -> None:
    """Add the plugin's keys to a detectron2 config; as they are, nothing changes."""
    # sgd (detectron2's own) | adamw
    cfg.SOLVER.OPTIMIZER = "sgd"
    # Data sets in Pascal VOC's folder layout to register: entries of
    # [name, folder, split, [class, ...]].
    cfg.DATASETS.VOC_STYLE = []
    # What a damaged annotation of them does: skip (it is counted and reported) | stop.
    cfg.DATASETS.VOC_STYLE_ON_ERROR = "skip"

    cfg.MODEL.ROBUST_LOSS = CfgNode()
    # Whether RobustTrainer records confidence and predicted class of every annotation, in the
    # checkpoint and in annotation_confidence.json: 4 (K + 2) bytes an annotation.
    cfg.MODEL.ROBUST_LOSS.RECORD_ANNOTATIONS = True

    # Classification of boxes: a RoI of Faster R-CNN, an anchor of RetinaNet.
    node = cfg.MODEL.ROBUST_LOSS.CLS = CfgNode()
    # none | superloss | mae | gce | gce_trunc | imae | gr. RetinaNet, whose loss is a focal loss
    # of independent classes, takes none and superloss.
    node.NAME = "none"
    # SuperLoss's threshold: "logc" (log of the number of classes, background included) | "avg" |
    # "expavg" | a number. None, which may become a word or a number, means "expavg".
    node.TAU = None
    # SuperLoss's regularisation: "auto" (follows the scale of the losses) | a number above 0.
    # None means 0.25, or 0.03 for RetinaNet, whose focal losses are smaller.
    node.LAMBDA = None
    # Factor of an automatic LAMBDA.
    node.LAMBDA_SCALE = 1.0
    # Part of the old threshold that "expavg" keeps.
    node.MOMENTUM = 0.9
    # Iterations over which SuperLoss sets in; at first it is the plain loss.
    node.WARMUP_ITERS = 0
    # Which boxes are weighted: all | foreground. The others keep the plain loss.
    node.SAMPLES = "foreground"
    # Which of the weighted boxes share a threshold: all | fgbg (foreground, background) | class.
    # None means class, or all for RetinaNet.
    node.TAU_SCOPE = None
    # Options of the other losses (see sl_core.build_loss): gce and gce_trunc; gce_trunc; imae; gr.
    node.Q = 0.7
    node.K = 0.5
    node.T = 8.0
    node.BETA = 8.0
    node.GR_LAMBDA = 0.5

    # Box regression, over foreground boxes.
    node = cfg.MODEL.ROBUST_LOSS.BOX = CfgNode()
    # none | superloss
    node.NAME = "none"
    # "avg" | "expavg" | a number; None means "expavg".
    node.TAU = None
    # "auto" | a number above 0; None means "auto", since losses of boxes have many scales.
    node.LAMBDA = None
    node.LAMBDA_SCALE = 1.0
    node.MOMENTUM = 0.9
    node.WARMUP_ITERS = 0


def merge_options(cfg: CfgNode, options: list[str]) -> None:
    """``cfg.merge_from_list`` in which TAU and LAMBDA may change between number and word.

    yacs lets a value change its type only if it was None.
    """
    for key in options[::2]:
        match = re.fullmatch(r"MODEL\.ROBUST_LOSS\.(CLS|BOX)\.(TAU|LAMBDA)", str(key))
        if match:
            cfg.MODEL.ROBUST_LOSS[match[1]][match[2]] = None
    cfg.merge_from_list(options)

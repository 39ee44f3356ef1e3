"""The config of a classification or regression run; YAML files on top of it, with ``_BASE_``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from fvcore.common.config import CfgNode

from sl_bench.config_checks import check_config


def get_cfg() -> CfgNode:
    """The defaults: a small network with plain cross-entropy on scikit-learn's digits."""
    cfg = CfgNode()
    # classification | regression (of the digit, or of the age in years)
    cfg.TASK = "classification"

    cfg.DATASET = CfgNode()
    # digits (comes with scikit-learn) | mnist | fashion_mnist | cifar10 | cifar100 | utkface |
    # clothing1m. Regression: digits, mnist, utkface.
    cfg.DATASET.NAME = "digits"
    # Folder of the local files; nothing is downloaded. sl_bench/data.py says what must lie there.
    cfg.DATASET.ROOT = ""
    # Images used, in an order that is the same for every seed; 0 means all.
    cfg.DATASET.TRAIN_SIZE = 0
    cfg.DATASET.TEST_SIZE = 0
    # Classes that are kept, renumbered from 0 in this order; [] means all.
    cfg.DATASET.CLASSES = []
    # Part of the training set that is held out after the noise was made, in [0, 1).
    cfg.DATASET.VALIDATION = 0.0
    # Side of the square that enters the network; 0 means as it is in the file. Files of pictures
    # (utkface, clothing1m) need it.
    cfg.DATASET.IMAGE_SIZE = 0
    # none | crop_flip (zeros of 4 pixels on every side, random crop, random mirroring) |
    # resize_crop_flip (warped to RESIZE x RESIZE, random crop of IMAGE_SIZE, random mirroring; the
    # middle crop in a test).
    cfg.DATASET.AUGMENT = "none"
    cfg.DATASET.RESIZE = 256

    cfg.NOISE = CfgNode()
    # none | sym (one of the other classes) | symkeep (any class, the own one included) |
    # asym_pairs (two classes of each group are mistaken for each other: imae.txt, 5.1) |
    # asym_group (another class of the own group: gradient_rescaling.txt, D) | uniform (regression:
    # any number between the smallest and the largest target).
    cfg.NOISE.KIND = "none"
    # Part of the labels that is changed, or redrawn, in [0, 1]: of the training set; for the asym
    # kinds of the images whose class can be mistaken.
    cfg.NOISE.RATE = 0.0
    # -1 means SEED.
    cfg.NOISE.SEED = -1
    # Group of each class, for the asym kinds; [] means the data set's own, which is cifar100's 20
    # coarse classes.
    cfg.NOISE.GROUPS = []

    cfg.MODEL = CfgNode()
    # small_cnn (two convolutions, two linear layers, no batch norm) | resnet20 | resnet44 |
    # resnet56 | wrn28_10 (for 32 x 32) | resnet18 | resnet50 (torchvision's).
    cfg.MODEL.NAME = "small_cnn"
    # none (random) | a file: a checkpoint of ours or a state dict. Its last layer is used if it has
    # the right size.
    cfg.MODEL.WEIGHTS = "none"
    # Dropout rate before the last layer; in wrn28_10 between the convolutions of each block.
    cfg.MODEL.DROPOUT = 0.0

    cfg.LOSS = CfgNode()
    # none (the input loss itself) | superloss (weights the input loss). Classification only: cce |
    # mae | gce | gce_trunc | imae | gr | data_params (cross-entropy with a learned confidence).
    cfg.LOSS.NAME = "none"
    # The loss that none and superloss take: cross_entropy | focal for classification, smooth_l1 |
    # l2 for regression. Not read by the other names.
    cfg.LOSS.INPUT = "cross_entropy"
    # Exponent of focal, at least 0.
    cfg.LOSS.FOCAL_GAMMA = 2.0
    # SuperLoss's threshold: "logc" | "avg" | "expavg" | a number; None means "expavg".
    cfg.LOSS.TAU = None
    # SuperLoss's regularisation: "auto" | a number above 0; None means 1.
    cfg.LOSS.LAMBDA = None
    # Factor of an automatic LAMBDA.
    cfg.LOSS.LAMBDA_SCALE = 1.0
    # Part of the old threshold that "expavg" keeps.
    cfg.LOSS.MOMENTUM = 0.9
    # superloss: training steps over which it sets in. gce_trunc: first steps without truncation,
    # which would leave an untrained network without a gradient.
    cfg.LOSS.WARMUP_STEPS = 0
    # Options of gce and gce_trunc; of gce_trunc; of imae; of gr (the paper's beta and lambda).
    cfg.LOSS.Q = 0.7
    cfg.LOSS.K = 0.5
    cfg.LOSS.T = 8.0
    cfg.LOSS.BETA = 8.0
    cfg.LOSS.GR_LAMBDA = 0.5
    # data_params: learning rates of the confidence of each image and of each class (0: not learned;
    # the supplementary has images only), momentum of both, regularisation, and the largest
    # confidence; the smallest is 1 / that.
    cfg.LOSS.DATA_PARAMS_LR = 0.2
    cfg.LOSS.DATA_PARAMS_CLASS_LR = 0.0
    cfg.LOSS.DATA_PARAMS_MOMENTUM = 0.9
    cfg.LOSS.DATA_PARAMS_LAMBDA = 0.0
    cfg.LOSS.DATA_PARAMS_LIMIT = 20.0

    cfg.SOLVER = CfgNode()
    # sgd | adam
    cfg.SOLVER.OPTIMIZER = "sgd"
    cfg.SOLVER.BASE_LR = 0.1
    cfg.SOLVER.WEIGHT_DECAY = 1e-4
    # Of sgd.
    cfg.SOLVER.MOMENTUM = 0.9
    cfg.SOLVER.NESTEROV = False
    # Of adam: what is added to the root of the second moment (delta of imae.txt, table 8).
    cfg.SOLVER.ADAM_EPS = 1e-8
    # Images of a step, over all processes. The rest of an epoch that fills no batch is left out;
    # which images those are changes with every epoch.
    cfg.SOLVER.BATCH_SIZE = 128
    # Length of the training in epochs; or, if ITERATIONS is above 0, in steps.
    cfg.SOLVER.EPOCHS = 30
    cfg.SOLVER.ITERATIONS = 0
    # constant | step (times GAMMA at each of MILESTONES) | cosine (down to 0 at the end)
    cfg.SOLVER.SCHEDULE = "step"
    # In epochs; in steps if ITERATIONS is above 0.
    cfg.SOLVER.MILESTONES = []
    cfg.SOLVER.GAMMA = 0.1
    # First epochs, over which the rate rises from 0 in a straight line.
    cfg.SOLVER.WARMUP_EPOCHS = 0

    # Label correction (gradient_rescaling.txt, E): when the training is over, its network's
    # predictions become the labels, and a new network is trained on them from scratch.
    cfg.CORRECTION = CfgNode()
    # How often; 0 means not at all, 1 is the paper's.
    cfg.CORRECTION.ROUNDS = 0
    # Only labels whose prediction has at least this probability are changed; 0 is the paper's.
    cfg.CORRECTION.MIN_PROBABILITY = 0.0

    # Epochs between two tests, and between two looks at the training set in evaluation mode (0:
    # only at the end). Both are also made after the last epoch.
    cfg.EVAL_PERIOD = 1
    cfg.TRAIN_EVAL_PERIOD = 0
    cfg.EVAL_BATCH_SIZE = 512
    # Regression: threshold t of the truncated error min(t, |y - prediction|); the supplementary has
    # 1 for mnist and 10 for utkface.
    cfg.TRUNCATE = 1.0
    # "" takes a GPU if there is one.
    cfg.DEVICE = ""
    # Processes that read pictures (utkface, clothing1m).
    cfg.NUM_WORKERS = 4
    cfg.SEED = 0
    cfg.OUTPUT_DIR = "output/bench"
    return cfg


def load_config(file: str | Path | None, options: list[str]) -> CfgNode:
    """Defaults, then a YAML file, then ``KEY value`` options; nothing of them is executed."""
    cfg = get_cfg()
    if len(options) % 2:
        raise ValueError(f"options are {' '.join(options)}, expected pairs of key and value")
    if file is not None:
        _merge(f"{file}", lambda: cfg.merge_from_file(str(file), allow_unsafe=False))
    for key in options[::2]:
        # yacs lets a value change its type only if it was None.
        if key in ("LOSS.TAU", "LOSS.LAMBDA"):
            cfg.LOSS[key.removeprefix("LOSS.")] = None
    _merge("options", lambda: cfg.merge_from_list(options))
    check_config(cfg)
    cfg.freeze()
    return cfg


def _merge(source: str, merge: Callable[[], Any]) -> None:
    """Merge, with every error of yacs and YAML as a ValueError that names the source."""
    try:
        merge()
    except (AssertionError, KeyError, ValueError, OSError, yaml.YAMLError) as error:
        raise ValueError(f"{source}: {error}") from error

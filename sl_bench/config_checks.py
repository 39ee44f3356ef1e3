"""Which values of a config can be, alone and together."""

import math
from typing import Any

from fvcore.common.config import CfgNode

CLASSIFICATION_SETS = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "clothing1m")
REGRESSION_SETS = ("digits", "mnist", "utkface")
PICTURE_SETS = ("utkface", "clothing1m")
MODELS = (
    "small_cnn",
    "resnet20",
    "resnet44",
    "resnet56",
    "wrn28_10",
    "resnet18",
    "resnet50",
)
LOSSES = {
    "classification": (
        "none",
        "superloss",
        "cce",
        "mae",
        "gce",
        "gce_trunc",
        "imae",
        "gr",
        "data_params",
    ),
    "regression": ("none", "superloss"),
}
INPUT_LOSSES = {
    "classification": ("cross_entropy", "focal"),
    "regression": ("smooth_l1", "l2"),
}
NOISES = {
    "classification": ("none", "sym", "symkeep", "asym_pairs", "asym_group"),
    "regression": ("none", "uniform"),
}
DATASETS = {"classification": CLASSIFICATION_SETS, "regression": REGRESSION_SETS}

_CHOICES = {
    "TASK": ("classification", "regression"),
    "DATASET.AUGMENT": ("none", "crop_flip", "resize_crop_flip"),
    "MODEL.NAME": MODELS,
    "SOLVER.OPTIMIZER": ("sgd", "adam"),
    "SOLVER.SCHEDULE": ("constant", "step", "cosine"),
}
_CHOICES_OF_TASK = {
    "DATASET.NAME": DATASETS,
    "LOSS.NAME": LOSSES,
    "NOISE.KIND": NOISES,
}
_AT_LEAST = {
    "DATASET.TRAIN_SIZE": 0,
    "DATASET.TEST_SIZE": 0,
    "DATASET.IMAGE_SIZE": 0,
    "DATASET.RESIZE": 1,
    "NOISE.SEED": -1,
    "LOSS.FOCAL_GAMMA": 0,
    "LOSS.WARMUP_STEPS": 0,
    "LOSS.DATA_PARAMS_LR": 0,
    "LOSS.DATA_PARAMS_CLASS_LR": 0,
    "LOSS.DATA_PARAMS_LAMBDA": 0,
    "LOSS.DATA_PARAMS_LIMIT": 1,
    "SOLVER.WEIGHT_DECAY": 0,
    "SOLVER.BATCH_SIZE": 1,
    "SOLVER.EPOCHS": 1,
    "SOLVER.ITERATIONS": 0,
    "SOLVER.WARMUP_EPOCHS": 0,
    "CORRECTION.ROUNDS": 0,
    "EVAL_PERIOD": 1,
    "TRAIN_EVAL_PERIOD": 0,
    "EVAL_BATCH_SIZE": 1,
    "NUM_WORKERS": 0,
    "SEED": 0,
}
_ABOVE_ZERO = (
    "LOSS.LAMBDA_SCALE",
    "SOLVER.BASE_LR",
    "SOLVER.GAMMA",
    "SOLVER.ADAM_EPS",
    "TRUNCATE",
)
_BELOW_ONE = (
    "DATASET.VALIDATION",
    "MODEL.DROPOUT",
    "LOSS.MOMENTUM",
    "LOSS.DATA_PARAMS_MOMENTUM",
    "SOLVER.MOMENTUM",
)


def check_config(cfg: CfgNode) -> None:
    """Raise ValueError, naming the key, what was found and what was expected."""
    for key, choices in _CHOICES.items():
        _check_choice(key, _value(cfg, key), choices)
    for key, by_task in _CHOICES_OF_TASK.items():
        _check_choice(key, _value(cfg, key), by_task[cfg.TASK], f" for TASK {cfg.TASK}")
    for key, least in _AT_LEAST.items():
        value = _value(cfg, key)
        _check(key, value, value >= least, f"at least {least}")
    for key in _ABOVE_ZERO:
        _check(key, _value(cfg, key), _value(cfg, key) > 0, "a number above 0")
    for key in _BELOW_ONE:
        _check(key, _value(cfg, key), 0 <= _value(cfg, key) < 1, "a number in [0, 1)")
    for key in ("NOISE.RATE", "CORRECTION.MIN_PROBABILITY"):
        _check(key, _value(cfg, key), 0 <= _value(cfg, key) <= 1, "a number in [0, 1]")
    _check_lists(cfg)
    _check_loss(cfg)
    _check_data(cfg)
    if cfg.TASK == "regression" and cfg.CORRECTION.ROUNDS:
        raise ValueError(
            f"CORRECTION.ROUNDS is {cfg.CORRECTION.ROUNDS}, expected 0 for TASK regression"
        )
    if cfg.SOLVER.NESTEROV and not cfg.SOLVER.MOMENTUM:
        raise ValueError("SOLVER.NESTEROV is True, which needs SOLVER.MOMENTUM above 0")


def _check_lists(cfg: CfgNode) -> None:
    milestones = cfg.SOLVER.MILESTONES
    rising = all(isinstance(m, int | float) and m > 0 for m in milestones)
    rising = rising and list(milestones) == sorted(set(milestones))
    _check("SOLVER.MILESTONES", milestones, rising, "rising numbers above 0")
    classes = cfg.DATASET.CLASSES
    distinct = all(isinstance(c, int) and c >= 0 for c in classes)
    distinct = distinct and len(set(classes)) == len(classes) != 1
    _check("DATASET.CLASSES", classes, distinct, "two or more different class numbers, or []")
    groups = cfg.NOISE.GROUPS
    _check("NOISE.GROUPS", groups, all(isinstance(g, int) for g in groups), "a list of integers")


def _check_loss(cfg: CfgNode) -> None:
    loss = cfg.LOSS
    if loss.NAME in ("none", "superloss"):
        _check_choice("LOSS.INPUT", loss.INPUT, INPUT_LOSSES[cfg.TASK], f" for TASK {cfg.TASK}")
    words = ("logc", "avg", "expavg") if cfg.TASK == "classification" else ("avg", "expavg")
    is_tau = loss.TAU is None or loss.TAU in words or _is_number(loss.TAU)
    _check("LOSS.TAU", loss.TAU, is_tau, f"None, a number or one of {', '.join(words)}")
    is_lam = loss.LAMBDA in (None, "auto") or (_is_number(loss.LAMBDA) and loss.LAMBDA > 0)
    _check("LOSS.LAMBDA", loss.LAMBDA, is_lam, 'None, "auto" or a number above 0')


def _check_data(cfg: CfgNode) -> None:
    data = cfg.DATASET
    if data.NAME != "digits" and not data.ROOT:
        raise ValueError(
            f"DATASET.ROOT is empty, expected the folder with the files of {data.NAME}"
        )
    if data.CLASSES and cfg.TASK == "regression":
        raise ValueError(f"DATASET.CLASSES is {data.CLASSES}, expected [] for TASK regression")
    needs_size = data.NAME in PICTURE_SETS or data.AUGMENT == "resize_crop_flip"
    if needs_size and not data.IMAGE_SIZE:
        reason = data.NAME if data.NAME in PICTURE_SETS else f"AUGMENT {data.AUGMENT}"
        raise ValueError(f"DATASET.IMAGE_SIZE is 0, expected a number of pixels for {reason}")
    if data.AUGMENT == "resize_crop_flip" and data.RESIZE < data.IMAGE_SIZE:
        raise ValueError(
            f"DATASET.RESIZE is {data.RESIZE}, expected at least IMAGE_SIZE {data.IMAGE_SIZE}"
        )


def _check_choice(key: str, value: Any, choices: tuple[str, ...], where: str = "") -> None:
    if value not in choices:
        raise ValueError(f"{key} is {value!r}, expected one of {', '.join(choices)}{where}")


def _check(key: str, value: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"{key} is {value!r}, expected {expected}")


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and not math.isnan(value)


def _value(cfg: CfgNode, key: str) -> Any:
    node = cfg
    for part in key.split("."):
        node = node[part]
    return node

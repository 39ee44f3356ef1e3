"""Optimizer and learning rate."""

import math
from collections.abc import Iterable

from fvcore.common.config import CfgNode
from torch import nn
from torch.optim import SGD, Adam, Optimizer


def build_optimizer(solver: CfgNode, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The optimizer of SOLVER."""
    if solver.OPTIMIZER == "adam":
        return Adam(
            parameters, solver.BASE_LR, weight_decay=solver.WEIGHT_DECAY, eps=solver.ADAM_EPS
        )
    return SGD(
        parameters,
        solver.BASE_LR,
        momentum=solver.MOMENTUM,
        weight_decay=solver.WEIGHT_DECAY,
        nesterov=solver.NESTEROV,
    )


def total_steps(solver: CfgNode, steps_per_epoch: int) -> int:
    """Steps of the whole training."""
    return int(solver.ITERATIONS or solver.EPOCHS * steps_per_epoch)


def total_epochs(solver: CfgNode, steps_per_epoch: int) -> int:
    """Epochs of the whole training, of which ITERATIONS may cut the last one."""
    return math.ceil(total_steps(solver, steps_per_epoch) / steps_per_epoch)


def learning_rate(solver: CfgNode, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, from 0; a function of nothing else, so a resume changes nothing.

    step: BASE_LR GAMMA^k after k milestones. cosine: BASE_LR (1 + cos(pi t)) / 2 with t from 0 to
    1 over the training. In the warm-up of w steps this is times (step + 1) / w.
    """
    rate: float = solver.BASE_LR
    if solver.SCHEDULE == "step":
        unit = 1 if solver.ITERATIONS else steps_per_epoch
        rate *= solver.GAMMA ** sum(step >= milestone * unit for milestone in solver.MILESTONES)
    elif solver.SCHEDULE == "cosine":
        rate *= (1 + math.cos(math.pi * step / total_steps(solver, steps_per_epoch))) / 2
    warmup = solver.WARMUP_EPOCHS * steps_per_epoch
    return rate * min((step + 1) / warmup, 1) if warmup else rate

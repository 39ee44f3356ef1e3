"""Optimizer and learning rate as in cirtorch."""

import math
from typing import Any

from torch.optim import SGD, Adam, Optimizer

from sl_core.checks import require
from sl_retrieval.network import ImageRetrievalNet
from sl_retrieval.pooling import GeM, GeMmp, Rpool

OPTIMIZERS = ("adam", "sgd")


def parameter_groups(
    network: ImageRetrievalNet, lr: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Groups of parameters, in cirtorch's order, so that either side can resume the other's.

    The order is features, local whitening, exponents of the pooling, whitening of the regions,
    whitening; parts that a network does not have are left out. The exponents have no weight decay
    and 10 times the learning rate (gem) or 100 times (gemmp); all else has ``lr`` and
    ``weight_decay``. Parameters that need no gradient are included: they are never changed.
    """
    regional = network.pool if isinstance(network.pool, Rpool) else None
    pool = network.pool if regional is None else regional.rpool
    plain = {"lr": lr, "weight_decay": weight_decay}
    groups = [{"params": list(network.features.parameters()), **plain}]
    if network.lwhiten is not None:
        groups.append({"params": list(network.lwhiten.parameters()), **plain})
    if isinstance(pool, GeM | GeMmp):
        factor = 10 if isinstance(pool, GeM) else 100
        groups.append({"params": [pool.p], "lr": factor * lr, "weight_decay": 0.0})
    if regional is not None:
        groups.append({"params": list(regional.whiten.parameters()), **plain})
    if network.whiten is not None:
        groups.append({"params": list(network.whiten.parameters()), **plain})
    return groups


def build_optimizer(
    network: ImageRetrievalNet,
    name: str = "adam",
    lr: float = 1e-6,
    weight_decay: float = 1e-6,
    momentum: float = 0.9,
) -> Optimizer:
    """Build the optimizer of ``parameter_groups``.

    Args:
        network: whose parameters are trained.
        name: adam or sgd.
        lr: learning rate, above 0.
        weight_decay: at least 0.
        momentum: of sgd, in [0, 1).
    """
    require(name in OPTIMIZERS, "name", name, f"one of {', '.join(OPTIMIZERS)}")
    require(lr > 0, "lr", lr, "a number above 0")
    require(weight_decay >= 0, "weight_decay", weight_decay, "a number at least 0")
    require(0 <= momentum < 1, "momentum", momentum, "a number in [0, 1)")
    groups = parameter_groups(network, lr, weight_decay)
    if name == "sgd":
        return SGD(groups, lr, momentum=momentum, weight_decay=weight_decay)
    return Adam(groups, lr, weight_decay=weight_decay)


def set_learning_rates(optimizer: Optimizer, decay: float, epoch: int) -> None:
    """Set every group's rate to ``exp(-decay (epoch + 1))`` times its first one.

    cirtorch steps its scheduler at the start of an epoch, so epoch 0 already has one decay. A
    function of the epoch alone, so a training that is resumed cannot be off by one.

    Args:
        optimizer: new, or with its state loaded, which has the first learning rates.
        decay: at least 0.
        epoch: that is about to begin, from 0.
    """
    require(decay >= 0, "decay", decay, "a number at least 0")
    require(epoch >= 0, "epoch", epoch, "at least 0")
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * math.exp(-decay * (epoch + 1))

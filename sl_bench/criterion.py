"""The loss of each image, plain and robust, by the names of the config."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from fvcore.common.config import CfgNode
from torch import Tensor, nn

from sl_core import SuperLoss, build_loss

InputLoss = Callable[[Tensor, Tensor], Tensor]


def focal_loss(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """``-(1 - p)^gamma log p`` of the labelled class; gamma = 0 is cross-entropy.

    Args:
        logits: (B, C).
        labels: (B,) integers.
        gamma: at least 0.
    """
    cross_entropy = F.cross_entropy(logits, labels, reduction="none")
    # 1 - p without the rounding of p near 1, where a power below 1 has a gradient without bound.
    miss = -torch.expm1(-cross_entropy)
    return miss.clamp(min=torch.finfo(miss.dtype).tiny) ** gamma * cross_entropy


def input_loss(name: str, focal_gamma: float = 2.0) -> InputLoss:
    """The loss of outputs (B, C) or, for regression, (B, 1) and targets (B,), as (B,).

    Args:
        name: cross_entropy, focal, l2 (squared error) or smooth_l1 (quadratic below an error of 1).
        focal_gamma: exponent of focal.
    """
    losses: dict[str, InputLoss] = {
        "cross_entropy": lambda z, y: F.cross_entropy(z, y, reduction="none"),
        "focal": lambda z, y: focal_loss(z, y, focal_gamma),
        "l2": lambda z, y: F.mse_loss(z.squeeze(-1), y, reduction="none"),
        "smooth_l1": lambda z, y: F.smooth_l1_loss(z.squeeze(-1), y, reduction="none"),
    }
    return losses[name]


class Criterion(nn.Module):
    """Robust losses of a batch, not reduced.

    Args:
        name: none, superloss, cce, mae, gce, gce_trunc, imae, gr or data_params.
        plain: the loss that none and superloss take.
        steps_before: of gce_trunc: training steps before the truncation begins.
        options: of ``build_loss``.

    Attributes:
        plain_losses: (B,) of the latest batch, detached: of the input loss; cross-entropy for the
            names that take none.
        confidence: (B,) of the latest batch, detached, for superloss and data_params; else None.
    """

    steps: Tensor

    def __init__(self, name: str, plain: InputLoss, steps_before: int = 0, **options: Any) -> None:
        super().__init__()
        self.name, self.plain = name, plain
        self.robust = build_loss(name, reduction="none", **options)
        self.untruncated: nn.Module | None = None
        if name == "gce_trunc":
            self.untruncated = build_loss("gce", reduction="none", q=options["q"])
        self.steps_before = steps_before
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.plain_losses = torch.empty(0)
        self.confidence: Tensor | None = None

    def forward(self, outputs: Tensor, targets: Tensor, confidence: Tensor | None = None) -> Tensor:
        """Robust losses (B,) of outputs (B, C) and targets (B,).

        Args:
            outputs: of the network.
            targets: classes or numbers.
            confidence: (B,), for data_params only.
        """
        plain = self.plain(outputs, targets)
        self.plain_losses = plain.detach()
        if self.name in ("none", "superloss"):
            losses: Tensor = self.robust(plain)
            if isinstance(self.robust, SuperLoss):
                self.confidence = self.robust.confidence
        elif self.name == "data_params":
            assert confidence is not None
            self.confidence = confidence.detach()
            losses = self.robust(outputs, targets, confidence)
        else:
            robust = self.robust
            if self.untruncated is not None and self.steps < self.steps_before:
                robust = self.untruncated
            losses = robust(outputs, targets)
        if self.training:
            self.steps += 1
        return losses


def build_criterion(cfg: CfgNode, num_classes: int) -> Criterion:
    """The criterion of LOSS.

    Raises:
        ValueError: an option is out of range; the message names the key.
    """
    loss = cfg.LOSS
    options: dict[str, dict[str, Any]] = {
        "superloss": {
            "tau": "expavg" if loss.TAU is None else loss.TAU,
            "lam": 1.0 if loss.LAMBDA is None else loss.LAMBDA,
            "lam_scale": loss.LAMBDA_SCALE,
            "momentum": loss.MOMENTUM,
            "warmup_steps": loss.WARMUP_STEPS,
            "num_classes": num_classes or None,
        },
        "gce": {"q": loss.Q},
        "gce_trunc": {"q": loss.Q, "k": loss.K},
        "imae": {"T": loss.T},
        "gr": {"beta": loss.BETA, "lam": loss.GR_LAMBDA},
        "data_params": {"lam": loss.DATA_PARAMS_LAMBDA},
    }
    takes_input = loss.NAME in ("none", "superloss")
    plain = input_loss(loss.INPUT if takes_input else "cross_entropy", loss.FOCAL_GAMMA)
    try:
        return Criterion(loss.NAME, plain, loss.WARMUP_STEPS, **options.get(loss.NAME, {}))
    except ValueError as error:
        raise ValueError(f"LOSS for {loss.NAME}: {error}") from error

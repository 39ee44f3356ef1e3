"""From the config node to a module that replaces the plain loss of some boxes by a robust one."""

from typing import Any, NamedTuple

import torch
from detectron2.config import CfgNode
from torch import Tensor, nn

from sl_core import SuperLoss, build_loss
from sl_detectron.compat import current_storage

CLASSIFICATION_LOSSES = ("none", "superloss", "mae", "gce", "gce_trunc", "imae", "gr")
DENSE_LOSSES = ("none", "superloss")
SAMPLES = ("all", "foreground")
TAU_SCOPES = ("all", "fgbg", "class")
LOG_PERIOD = 20  # iterations, as detectron2's writers


class Observation(NamedTuple):
    """What a training step said about single annotations; one row for each foreground box.

    Attributes:
        ids: (M,) ids of the annotations that the boxes are matched to.
        confidence: (M,) weights that the boxes had.
        probabilities: (M, K) predicted probabilities of the foreground classes.
    """

    ids: Tensor
    confidence: Tensor
    probabilities: Tensor


class ClassificationWeighting(nn.Module):
    """The difference that a robust classification loss makes to the plain one.

    Args:
        loss: module of ``build_loss`` with reduction none; SuperLoss is given the plain losses,
            the others logits and targets.
        num_classes: number of foreground classes K; K itself is background.
        samples: all | foreground: which boxes are weighted.
        tau_scope: all | fgbg | class: which boxes share SuperLoss's threshold.
    """

    def __init__(self, loss: nn.Module, num_classes: int, samples: str, tau_scope: str) -> None:
        super().__init__()
        self.loss = loss
        self.num_classes = num_classes
        self.samples = samples
        self.tau_scope = tau_scope

    def chosen(self, classes: Tensor) -> Tensor:
        """Which boxes are weighted: bool, shape of ``classes``, which are -1 for ignored ones."""
        last = self.num_classes if self.samples == "all" else self.num_classes - 1
        return (classes >= 0) & (classes <= last)

    def forward(self, plain: Tensor, classes: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Sum of robust minus plain losses, and the confidence of each box.

        Args:
            plain: (M,) plain losses of chosen boxes.
            classes: (M,) their classes in [0, K].
            logits: (M, C) their logits.
        """
        if isinstance(self.loss, SuperLoss):
            robust = self.loss(plain, self._groups(classes))
            assert self.loss.confidence is not None
            confidence = self.loss.confidence
            self._log(classes, confidence)
        else:
            robust, confidence = self.loss(logits, classes), torch.ones_like(plain.detach())
        return (robust - plain).sum(), confidence

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"samples={self.samples}, tau_scope={self.tau_scope}"

    def _groups(self, classes: Tensor) -> Tensor | None:
        if self.tau_scope == "all":
            return None
        return classes if self.tau_scope == "class" else (classes == self.num_classes).long()

    @torch.no_grad()
    def _log(self, classes: Tensor, confidence: Tensor) -> None:
        """Scalars and histograms for TensorBoard, by foreground and background."""
        storage = current_storage()
        if storage is None or storage.iter % LOG_PERIOD:
            return
        foreground = classes < self.num_classes
        for name, part in (("fg", confidence[foreground]), ("bg", confidence[~foreground])):
            if len(part):
                storage.put_scalar(f"sl/confidence_{name}_mean", part.mean().item())
                below = (part < 0.5).float().mean().item()
                storage.put_scalar(f"sl/confidence_{name}_below_half", below)
                storage.put_histogram(f"sl/confidence_{name}", part.cpu(), bins=50)
        for name, value in self._taus().items():
            storage.put_scalar(f"sl/tau_{name}", value)

    def _taus(self) -> dict[str, float]:
        """The thresholds in use: one for each group, or a summary of those of the classes."""
        assert isinstance(self.loss, SuperLoss)
        taus, used = self.loss.tau.tolist(), self.loss.initialised.tolist()
        if self.tau_scope == "class":
            seen = [tau for tau, is_used in zip(taus, used, strict=True) if is_used]
            if not seen:
                return {}
            return {"mean": sum(seen) / len(seen), "min": min(seen), "max": max(seen)}
        names = ("fg", "bg") if self.tau_scope == "fgbg" else ("all",)
        return {name: tau for name, tau, is_used in zip(names, taus, used, strict=True) if is_used}


def build_classification_weighting(
    cfg: CfgNode, num_classes: int, known: tuple[str, ...] = CLASSIFICATION_LOSSES
) -> ClassificationWeighting | None:
    """From ``MODEL.ROBUST_LOSS.CLS``; None keeps the stock loss.

    Args:
        cfg: the whole config.
        num_classes: number of foreground classes.
        known: losses that the detector can use: DENSE_LOSSES for independent classes.
    """
    node, key = cfg.MODEL.ROBUST_LOSS.CLS, "MODEL.ROBUST_LOSS.CLS"
    _require(node.NAME, known, f"{key}.NAME")
    _require(node.SAMPLES, SAMPLES, f"{key}.SAMPLES")
    softmax = known is not DENSE_LOSSES
    default_scope, default_lam = ("class", 0.25) if softmax else ("all", 0.03)
    scope = default_scope if node.TAU_SCOPE is None else node.TAU_SCOPE
    _require(scope, TAU_SCOPES, f"{key}.TAU_SCOPE")
    if node.NAME == "none":
        return None
    options: dict[str, dict[str, Any]] = {
        "superloss": {
            **_superloss_options(node, default_lam),
            "num_classes": num_classes + softmax,
            "num_groups": {"all": 1, "fgbg": 2, "class": num_classes + 1}[scope],
        },
        "gce": {"q": node.Q},
        "gce_trunc": {"q": node.Q, "k": node.K},
        "imae": {"T": node.T},
        "gr": {"beta": node.BETA, "lam": node.GR_LAMBDA},
    }
    loss = _build(key, node.NAME, options.get(node.NAME, {}))
    return ClassificationWeighting(loss, num_classes, node.SAMPLES, scope)


def build_box_weighting(cfg: CfgNode) -> SuperLoss | None:
    """From ``MODEL.ROBUST_LOSS.BOX``; None keeps the stock loss."""
    node, key = cfg.MODEL.ROBUST_LOSS.BOX, "MODEL.ROBUST_LOSS.BOX"
    _require(node.NAME, ("none", "superloss"), f"{key}.NAME")
    if node.NAME == "none":
        return None
    if node.TAU == "logc":
        raise ValueError(f"{key}.TAU is 'logc', expected avg, expavg or a number")
    loss = _build(key, "superloss", _superloss_options(node, default_lam="auto"))
    assert isinstance(loss, SuperLoss)
    return loss


def _superloss_options(node: CfgNode, default_lam: float | str) -> dict[str, Any]:
    return {
        "tau": "expavg" if node.TAU is None else node.TAU,
        "lam": default_lam if node.LAMBDA is None else node.LAMBDA,
        "lam_scale": node.LAMBDA_SCALE,
        "momentum": node.MOMENTUM,
        "warmup_steps": node.WARMUP_ITERS,
    }


def _build(key: str, name: str, options: dict[str, Any]) -> nn.Module:
    try:
        return build_loss(name, reduction="none", **options)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def _require(value: Any, known: tuple[str, ...], key: str) -> None:
    if value not in known:
        raise ValueError(f"{key} is {value!r}, expected one of {', '.join(known)}")

"""Confidence-aware losses that came before SuperLoss (supplementary, section 1).

Unlike SuperLoss they need the confidence sigma as an input, which a network or a parameter must
learn. All return per-sample (or per-task) losses.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from sl_core.checks import check_options


def introspection_loss(similarity: Tensor, label: Tensor, confidence: Tensor) -> Tensor:
    """Eq. 1: ``log((exp(sigma) - 1) / sigma) - sigma y s``.

    The gradient with respect to s is -sigma y; sigma -> 0 gives 0, sigma -> inf gives
    sigma (1 - y s) - log sigma.

    Args:
        similarity: s in [0, 1], any shape.
        label: y, -1 or 1, same shape.
        confidence: sigma > 0, same shape.
    """
    # exp(sigma) - 1 = exp(sigma) (1 - exp(-sigma)), which does not overflow.
    log_normaliser = confidence + torch.log(-torch.expm1(-confidence) / confidence)
    return log_normaliser - confidence * label * similarity


def reliability_loss(average_precision: Tensor, confidence: Tensor) -> Tensor:
    """Eq. 2 (R2D2): ``sigma (1 - AP) + (1 - sigma) / 2``.

    Linear in sigma, so the best sigma is 0 where AP < 1/2 and 1 where AP > 1/2.

    Args:
        average_precision: AP in [0, 1], any shape.
        confidence: sigma in [0, 1], same shape.
    """
    return confidence * (1 - average_precision) + (1 - confidence) / 2


def data_params_loss(
    logits: Tensor, targets: Tensor, confidence: Tensor, lam: float = 0.0
) -> Tensor:
    """Eq. 3: cross-entropy of ``sigma z``, plus the regularisation ``lam (log sigma)^2``.

    For sigma -> inf and lam = 0 the 0-1 loss of eq. 4: 0 if z_y is the largest logit, else inf.

    Args:
        logits: (N, C).
        targets: (N,) integers.
        confidence: (N,), sigma > 0, the inverse of Data Parameters' temperature.
        lam: at least 0.
    """
    check_options(lam=lam)
    loss = F.cross_entropy(logits * confidence.unsqueeze(-1), targets, reduction="none")
    return loss if lam == 0 else loss + lam * confidence.log() ** 2


def multitask_loss(losses: Tensor, log_variance: Tensor) -> Tensor:
    """Eq. 5 with s = log sigma^2: ``exp(-s) l / 2 + s / 2`` of each task.

    At its best, s = log l, so the loss must be positive.

    Args:
        losses: task losses, at least 0, any shape.
        log_variance: s, same shape.
    """
    return 0.5 * (torch.exp(-log_variance) * losses + log_variance)

"""One seat for all losses: by name, with checked options."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from sl_core.confidence_losses import data_params_loss, introspection_loss, reliability_loss
from sl_core.margin_losses import (
    cce_loss,
    gce_loss,
    gce_trunc_loss,
    gr_loss,
    imae_loss,
    mae_loss,
)
from sl_core.modules import MultiTaskLoss, PerSampleLoss, PlainLoss
from sl_core.superloss import SuperLoss

_MODULES: dict[str, type[nn.Module]] = {
    "none": PlainLoss,
    "superloss": SuperLoss,
    "multitask": MultiTaskLoss,
}
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "cce": cce_loss,
    "mae": mae_loss,
    "gce": gce_loss,
    "gce_trunc": gce_trunc_loss,
    "imae": imae_loss,
    "gr": gr_loss,
    "introspection": introspection_loss,
    "reliability": reliability_loss,
    "data_params": data_params_loss,
}
LOSS_NAMES = (*_MODULES, *_FUNCTIONS)


def loss_options(name: str) -> tuple[str, ...]:
    """The option names that ``build_loss`` takes for a loss; ValueError for an unknown loss."""
    if name in _MODULES:
        return tuple(inspect.signature(_MODULES[name]).parameters)
    if name in _FUNCTIONS:
        parameters = inspect.signature(_FUNCTIONS[name]).parameters.values()
        with_default = (p.name for p in parameters if p.default is not p.empty)
        return (*with_default, "reduction")
    raise ValueError(f"loss name is {name!r}, expected one of {', '.join(LOSS_NAMES)}")


def build_loss(name: str, **options: Any) -> nn.Module:
    """Build a loss module by name.

    ============================================  ==============================================
    name(options)                                 called with
    ============================================  ==============================================
    ``none``, ``superloss(tau, lam, ...)``        per_sample_loss, groups=None, mask=None
    ``cce``, ``mae``, ``gce(q)``,                 logits (..., C), targets (...)
    ``gce_trunc(q, k)``, ``imae(T)``,
    ``gr(beta, lam)``
    ``introspection``                             similarity, label, confidence
    ``reliability``                               average_precision, confidence
    ``data_params(lam)``                          logits, targets, confidence
    ``multitask(num_tasks)``                      task losses
    ============================================  ==============================================

    Every loss also takes ``reduction``: none, mean or sum.

    Raises:
        ValueError: unknown name or option (with the known ones), or a value out of range.
    """
    known = loss_options(name)
    unknown = [option for option in options if option not in known]
    if unknown:
        listed = ", ".join(known)
        raise ValueError(f"loss {name!r} has no option {', '.join(unknown)}; it has: {listed}")
    if name in _FUNCTIONS:
        return PerSampleLoss(_FUNCTIONS[name], **options)
    return _MODULES[name](**options)

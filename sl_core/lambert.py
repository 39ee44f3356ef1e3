"""The principal branch of the Lambert W function, on the device of its argument.

Everything here rests on one number: ``exp(-W(z))``. It is smooth where W itself has a branch
point, W = z exp(-W) follows from it without loss, and it is the confidence of SuperLoss.

Notation: p = sqrt(2 (1 + e z)), which is 0 at the branch point; q = log(1 + p); v = 1 + W.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

# v = q (1 + a1 q + a2 q^2 + a3 q^3) / (1 + b1 q + b2 q^2 + b3 q^3), fitted for p in [0, 4e19],
# which is all of float32: absolute error below 5e-3, and below 3e-7 for p < 0.13. a1 and a2 are
# such that the first three terms of the series at the branch point, v = q + q^2/6 - q^3/72, are
# exact; the error there is of order p^4.
_B1, _B2, _B3, _A3 = 0.4823186, 0.07292397, 0.00085755, 0.00171409
_A1 = _B1 + 1 / 6
_A2 = _B2 + _B1 / 6 - 1 / 72


class _Format(NamedTuple):
    """What depends on the floating-point format.

    Attributes:
        inverse_e: 1/e rounded to the format.
        inverse_e_rest: 1/e minus that; with it z + 1/e keeps its relative accuracy near 0.
        steps: corrections of third order after the fitted start value.
        trusted: below this v the start value is more exact than a correction, whose residual
            is a difference of numbers near 1 that is divided by v.
    """

    inverse_e: float
    inverse_e_rest: float
    steps: int
    trusted: float


_FORMATS = {
    torch.float32: _Format(0.3678794503211975, -9.149755188170101e-09, 1, 0.115),
    torch.float64: _Format(0.36787944117144233, -1.2428753672788363e-17, 3, 3e-4),
}


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The format in which W is computed: float64 for float64, float32 for all narrower ones."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def exp_minus_lambertw(z: Tensor) -> Tensor:
    """``exp(-W(max(z, -1/e)))``, in (0, e]; no gradient is recorded.

    Relative error in float32: below 1.5e-6; in float64: below 1e-14, and below 1e-12 within 1e-6
    of -1/e. No loop or branch depends on the values, and nothing leaves the device.

    Args:
        z: any shape, float32 or float64. inf gives the value at the largest finite number,
            which is as good as 0 (2e-37 in float32); nan gives nan.
    """
    inverse_e, inverse_e_rest, steps, trusted = _FORMATS[z.dtype]
    largest = torch.finfo(z.dtype).max
    # In place and into used-up tensors: on the CPU a new large tensor costs as much as ten
    # additions, because the system hands out its memory page by page.
    with torch.no_grad():
        p = (z + inverse_e).add_(inverse_e_rest).clamp_(0, largest).sqrt_()
        q = p.mul_(math.sqrt(2 * math.e)).add_(1).log_()
        v = (q * _A3).add_(_A2).mul_(q).add_(_A1).mul_(q).add_(1)
        scratch = (q * _B3).add_(_B2).mul_(q).add_(_B1).mul_(q).add_(1)
        v.div_(scratch).mul_(q)
        for steps_left in reversed(range(steps)):
            # With w = v - 1 and W = w + d, W exp(W) = z reads (w + d) exp(d) = w + residual.
            # Halley's d, put into (2 - d)/(2 + d) for exp(-d), gives this ratio.
            confidence = torch.neg(v, out=scratch).add_(1).exp_()
            residual = torch.clamp(z, -inverse_e, largest, out=q).mul_(confidence).sub_(v).add_(1)
            ratio = (v * v).clamp_(min=trusted**2).mul_(2).add_(residual)
            ratio.div_(residual.mul_(v).mul_(2).add_(ratio))
            if steps_left:
                v.sub_(ratio.log_())
        return ratio.mul_(confidence)


# The number next to -1/e in each format; it counts as the branch point.
_BRANCH_POINT = {
    dtype: torch.tensor(-1 / math.e, dtype=dtype).item()
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}


class _LambertW(torch.autograd.Function):
    @staticmethod
    def forward(z: Tensor) -> Tensor:
        wide = z.to(compute_dtype(z.dtype))
        w = wide * exp_minus_lambertw(wide)
        return w.masked_fill_(z < _BRANCH_POINT[z.dtype], math.nan).to(z.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (w,) = ctx.saved_tensors
        slope: Tensor = torch.exp(-w) / (1 + w)
        return grad * slope


def lambertw(z: Tensor) -> Tensor:
    """Principal branch of Lambert's W: the w >= -1 with ``w exp(w) = z``.

    Relative to ``scipy.special.lambertw`` (k = 0): real, differentiable to any order, and exact
    at -1/e, where scipy gives nan. The derivative is exp(-W) / (1 + W), infinite at -1/e.

    Args:
        z: any shape and floating dtype. Half and bfloat16 are computed in float32.

    Returns:
        W(z) in the dtype of ``z``: -1 at -1/e (the number next to it, in float32 and float64), 0
        at 0, inf at inf, nan below -1/e and at nan.
    """
    result: Tensor = _LambertW.apply(z)
    return result

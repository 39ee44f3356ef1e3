"""Global pooling of feature maps (B, D, H, W) to (B, D, 1, 1), as cirtorch defines it.

Half precision is widened to float32 first, autocast or not: GeM's floor of 1e-6 to the third power
is 0 in half. float64 stays. No pooling returns anything narrower than float32.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sl_core.checks import require

# Neighbouring regions along the longer side should share this part of their length.
_REGION_OVERLAP = 0.4
_MAX_EXTRA_REGIONS = 6


def l2n(x: Tensor, eps: float = 1e-6) -> Tensor:
    """``x / (|x| + eps)``, the norm over dimension 1; a zero vector stays zero.

    Unlike ``torch.nn.functional.normalize`` eps is added, so that norms end slightly below 1.
    """
    wide = _widen(x)
    norm: Tensor = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    return wide / (norm + eps)


def mac(x: Tensor) -> Tensor:
    """Maximum over the positions: (B, D, H, W) to (B, D, 1, 1)."""
    return functional.adaptive_max_pool2d(_widen(x), 1)


def spoc(x: Tensor) -> Tensor:
    """Mean over the positions: (B, D, H, W) to (B, D, 1, 1)."""
    return functional.adaptive_avg_pool2d(_widen(x), 1)


def gem(x: Tensor, p: float | Tensor = 3.0, eps: float = 1e-6) -> Tensor:
    """Generalised mean over the positions, ``mean(max(x, eps)^p)^(1/p)``.

    p = 1 is ``spoc``, p to inf is ``mac`` (both of max(x, eps)). A channel without any activation
    needs eps^p above 0: in float32 with the default eps, p up to 6.

    Args:
        x: (B, D, H, W).
        p: above 0; a number, or a tensor that broadcasts to x, (D, 1, 1) for one p per channel.
        eps: floor of x, above 0.

    Returns:
        (B, D, 1, 1).
    """
    wide = _widen(x)
    exponent = _widen(p) if isinstance(p, Tensor) else p
    return spoc(wide.clamp(min=eps).pow(exponent)).pow(1 / exponent)


def rmac(x: Tensor, levels: int = 3, eps: float = 1e-6) -> Tensor:
    """Sum of the unit vectors ``l2n(mac(region))`` over the whole map and its ``regions``.

    (B, D, H, W) to (B, D, 1, 1), which is not of unit length.
    """
    return torch.stack([l2n(mac(part), eps) for part in _parts(_widen(x), levels)]).sum(0)


def regions(height: int, width: int, levels: int = 3) -> list[tuple[int, int, int]]:
    """The square regions of R-MAC, as (top, left, size).

    At level l = 1, 2, ... the size is ``2 min(height, width) // (l + 1)``; there are l regions
    along the shorter side, and along the longer one 1 to 6 more, the number whose overlap at level
    1 is nearest to 0.4. They are spread evenly from border to border. Levels whose size would be 0
    have none.
    """
    short, long = min(height, width), max(height, width)
    extra = _extra_regions(short, long) if long > short else 0
    found = []
    for level in range(1, levels + 1):
        size = 2 * short // (level + 1)
        if size == 0:
            break
        tops = _starts(height, size, level + (extra if height > width else 0))
        lefts = _starts(width, size, level + (extra if width > height else 0))
        found += [(top, left, size) for top in tops for left in lefts]
    return found


def wide_linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """``layer(x)`` in the dtype of x, also under autocast and for weights of another dtype."""
    with torch.autocast(x.device.type, enabled=False):
        bias = None if layer.bias is None else layer.bias.to(x.dtype)
        return functional.linear(x, layer.weight.to(x.dtype), bias)


class L2N(nn.Module):
    """Module of ``l2n``."""

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Any shape with at least two dimensions to the same shape."""
        return l2n(x, self.eps)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"eps={self.eps:g}"


class MAC(nn.Module):
    """Module of ``mac``."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, H, W) to (B, D, 1, 1)."""
        return mac(x)


class SPoC(nn.Module):
    """Module of ``spoc``."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, H, W) to (B, D, 1, 1)."""
        return spoc(x)


class GeM(nn.Module):
    """Module of ``gem`` with one learned exponent, the parameter ``p`` of shape (1,)."""

    def __init__(self, p: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        require(p > 0, "p", p, "a number above 0")
        self.p = nn.Parameter(torch.full((1,), float(p)))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, H, W) to (B, D, 1, 1)."""
        return gem(x, self.p, self.eps)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"p={self.p.item():.4f}, eps={self.eps:g}"


class GeMmp(nn.Module):
    """Module of ``gem`` with a learned exponent for each channel, ``p`` of shape (channels,)."""

    def __init__(self, channels: int, p: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        require(p > 0, "p", p, "a number above 0")
        self.p = nn.Parameter(torch.full((channels,), float(p)))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) to (B, channels, 1, 1)."""
        return gem(x, self.p[:, None, None], self.eps)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"channels={len(self.p)}, eps={self.eps:g}"


class RMAC(nn.Module):
    """Module of ``rmac``."""

    def __init__(self, levels: int = 3, eps: float = 1e-6) -> None:
        super().__init__()
        require(levels >= 1, "levels", levels, "at least 1")
        self.levels = levels
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, H, W) to (B, D, 1, 1)."""
        return rmac(x, self.levels, self.eps)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"levels={self.levels}, eps={self.eps:g}"


class Rpool(nn.Module):
    """Regional pooling: ``l2n(sum over regions of l2n(whiten(l2n(rpool(region)))))``.

    The regions are the whole map and those of ``regions``. The whitening is a part of the pooling,
    with the state dict names ``whiten.weight`` and ``whiten.bias``.

    Args:
        rpool: pools (B, D, h, w) to (B, D, 1, 1).
        whiten: D to D.
        levels: of the regions, at least 1.
    """

    def __init__(self, rpool: nn.Module, whiten: nn.Linear, levels: int = 3) -> None:
        super().__init__()
        require(levels >= 1, "levels", levels, "at least 1")
        self.rpool = rpool
        self.whiten = whiten
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, H, W) to (B, D, 1, 1), vectors of unit length."""
        vectors = torch.stack([self.rpool(part) for part in _parts(_widen(x), self.levels)], dim=1)
        whitened = l2n(wide_linear(self.whiten, l2n(vectors.flatten(0, 1)).flatten(1)))
        return l2n(whitened.unflatten(0, vectors.shape[:2]).sum(1))[:, :, None, None]

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return f"levels={self.levels}"


def _widen(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _parts(x: Tensor, levels: int) -> list[Tensor]:
    """The whole map, then its regions."""
    squares = regions(x.shape[2], x.shape[3], levels)
    return [x, *(x[:, :, top : top + n, left : left + n] for top, left, n in squares)]


# Where a border or the best overlap falls on a rounding edge, cirtorch's float32 arithmetic decides
# (at 48 of the sizes up to 65 x 65 it differs from exact arithmetic). Networks trained there need
# the same regions here, so the same operations are made in float32.


def _extra_regions(short: int, long: int) -> int:
    """How many more regions the longer side has than the shorter."""
    extra = np.arange(1, _MAX_EXTRA_REGIONS + 1, dtype=np.float32)
    area = np.float32(short**2)
    # A number divided by a tensor is, in torch, the number times the tensor's reciprocal.
    overlap = (area - np.float32(short) * (np.float32(long - short) * (1 / extra))) / area
    return int(np.abs(overlap - np.float32(_REGION_OVERLAP)).argmin()) + 1


def _starts(length: int, size: int, count: int) -> list[int]:
    """First positions of ``count`` regions that spread evenly over ``length``."""
    half = np.float32(size // 2 - 1)
    step = np.float32((length - size) / max(count - 1, 1))
    centres = np.floor(half + np.arange(count, dtype=np.float32) * step)
    return [int(start) for start in centres - half]

"""Poolings against loops over their definitions, and their limit cases."""

import math

import pytest
import torch
from torch import Tensor, nn

from sl_retrieval.pooling import (
    L2N,
    MAC,
    RMAC,
    GeM,
    GeMmp,
    Rpool,
    SPoC,
    gem,
    l2n,
    mac,
    regions,
    rmac,
    spoc,
    wide_linear,
)

SIZES = [(1, 1), (1, 6), (2, 1), (3, 3), (7, 5), (5, 9), (9, 16)]


def maps(height: int, width: int, channels: int = 4, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(100 * height + width)
    return torch.randn(batch, channels, height, width, generator=generator).relu()


def by_loop(x: Tensor, p: float) -> Tensor:
    """The generalised mean of each channel, in double precision; p = inf is the maximum."""
    result = torch.empty(x.shape[0], x.shape[1], 1, 1)
    for image in range(x.shape[0]):
        for channel in range(x.shape[1]):
            values = [max(v, 1e-6) for v in x[image, channel].double().flatten().tolist()]
            mean = sum(v**p for v in values) / len(values) if math.isfinite(p) else 0.0
            result[image, channel] = mean ** (1 / p) if math.isfinite(p) else max(values)
    return result


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_gem_is_its_definition(height: int, width: int) -> None:
    x = maps(height, width)
    for p in (1.0, 2.2, 3.0, 5.0):
        torch.testing.assert_close(gem(x, p), by_loop(x, p))
    torch.testing.assert_close(gem(x), by_loop(x, 3.0))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_gem_lies_between_mean_and_maximum(height: int, width: int) -> None:
    x = maps(height, width).clamp(min=0.1).double()
    torch.testing.assert_close(gem(x, 1.0), spoc(x))
    torch.testing.assert_close(gem(x, 60.0), mac(x), rtol=0.1, atol=0)
    torch.testing.assert_close(mac(x).float(), by_loop(x, math.inf))
    ascending = torch.stack([spoc(x), gem(x, 2.0), gem(x, 3.0), gem(x, 8.0), mac(x)])
    assert (ascending.diff(dim=0) > -1e-5).all()


def test_gem_has_one_exponent_or_one_per_channel() -> None:
    x = maps(6, 4)
    single, many = GeM(p=2.0), GeMmp(4, p=2.0)
    assert single.p.shape == (1,)
    assert many.p.shape == (4,)
    torch.testing.assert_close(single(x), many(x))
    with torch.no_grad():
        many.p.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    for channel in range(4):
        expected = gem(x[:, channel : channel + 1], channel + 1.0)
        torch.testing.assert_close(many(x)[:, channel : channel + 1], expected)


def test_gem_learns_its_exponent() -> None:
    def pooled(x: Tensor, p: Tensor) -> Tensor:
        return gem(x, p)

    x = maps(3, 4).double().clamp(min=0.2).requires_grad_()
    p = torch.tensor([2.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pooled, (x, p))


def test_a_channel_without_activation_has_finite_gradients() -> None:
    x = torch.zeros(1, 2, 5, 5, requires_grad=True)
    pool = GeM()
    pool(x).sum().backward()
    assert x.grad is not None
    assert pool.p.grad is not None
    assert x.grad.isfinite().all()
    assert pool.p.grad.isfinite().all()


def test_regions_known_by_hand() -> None:
    square = [(0, 0, 6), (0, 0, 4), (0, 2, 4), (2, 0, 4), (2, 2, 4)]
    assert regions(6, 6, levels=2) == square
    # Overlap at level 1 of 2 regions is 0, of 3 a half, which is nearer to 0.4.
    assert regions(4, 8, levels=1) == [(0, 0, 4), (0, 2, 4), (0, 4, 4)]
    assert regions(8, 4, levels=1) == [(0, 0, 4), (2, 0, 4), (4, 0, 4)]
    assert regions(1, 1) == [(0, 0, 1)]


def test_regions_where_rounding_decides_are_those_of_cirtorch() -> None:
    """Found with cirtorch's own code; exact arithmetic has 26, 38, 44, and ends at 31."""
    assert [len(regions(*size)) for size in [(5, 9), (3, 11), (11, 47)]] == [20, 44, 50]
    assert (0, 30, 1) in regions(2, 32)


def test_regions_lie_inside_and_reach_the_borders() -> None:
    for height in range(1, 25):
        for width in range(1, 25):
            found = regions(height, width)
            assert min(min(top, left) for top, left, _ in found) == 0
            assert max(top + size for top, _, size in found) == height
            assert max(left + size for _, left, size in found) == width


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_rmac_adds_the_unit_maxima_of_the_regions(height: int, width: int) -> None:
    x = maps(height, width)
    expected = torch.zeros(2, 4, 1, 1)
    for top, left, size in [(0, 0, None), *regions(height, width)]:
        bottom, right = (height, width) if size is None else (top + size, left + size)
        for image in range(2):
            vector = x[image, :, top:bottom, left:right].flatten(1).max(1).values
            expected[image, :, 0, 0] += vector / (vector.square().sum().sqrt() + 1e-6)
    torch.testing.assert_close(rmac(x), expected)
    torch.testing.assert_close(RMAC()(x), expected)


def test_regional_pooling_whitens_each_region_and_adds_up() -> None:
    x = maps(5, 8)
    pool = Rpool(GeM(), nn.Linear(4, 4))
    assert set(pool.state_dict()) == {"rpool.p", "whiten.weight", "whiten.bias"}
    expected = torch.zeros(2, 4)
    for top, left, size in [(0, 0, 100), *regions(5, 8)]:
        vector = l2n(gem(x[:, :, top : top + size, left : left + size]))[:, :, 0, 0]
        expected += l2n(vector @ pool.whiten.weight.T + pool.whiten.bias)
    torch.testing.assert_close(pool(x), l2n(expected)[:, :, None, None])


def test_l2n_adds_eps_to_the_norm() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-6, 4e-6]])
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.5, 4 / 6]])
    torch.testing.assert_close(l2n(x), expected)
    torch.testing.assert_close(L2N()(x), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "pool", [MAC(), SPoC(), GeM(), GeMmp(4), RMAC(), L2N(), Rpool(GeM(), nn.Linear(4, 4))]
)
def test_half_precision_is_pooled_in_float32(pool: nn.Module, dtype: torch.dtype) -> None:
    # Small enough that the third power is 0 in half precision.
    x = (1e-3 * maps(5, 7)).to(dtype)
    result = pool(x)
    assert result.dtype == torch.float32
    assert (result > 0).any()
    torch.testing.assert_close(result, pool(x.float()), rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(pool(x), result, rtol=0, atol=0)


def test_pooling_a_network_in_half_precision_gives_float32() -> None:
    x = maps(5, 7)
    pool = Rpool(GeM(), nn.Linear(4, 4))
    wide = pool(x)
    narrow = pool.half()(x.half())
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, wide, rtol=0, atol=5e-3)


def test_wide_linear_is_the_layer() -> None:
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    torch.testing.assert_close(wide_linear(layer, x), layer(x))
    assert wide_linear(nn.Linear(3, 2, bias=False), x.double()).dtype == torch.float64


def test_modules_show_their_options() -> None:
    assert repr(GeM(p=2.5)) == "GeM(p=2.5000, eps=1e-06)"
    assert repr(GeMmp(7)) == "GeMmp(channels=7, eps=1e-06)"
    assert repr(RMAC(levels=2)) == "RMAC(levels=2, eps=1e-06)"
    assert "levels=3" in repr(Rpool(MAC(), nn.Linear(2, 2)))


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ValueError, match="p is 0, expected a number above 0"):
        GeM(p=0)
    with pytest.raises(ValueError, match="levels is 0, expected at least 1"):
        RMAC(levels=0)

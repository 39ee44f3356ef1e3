"""The SuperLoss module: running thresholds, groups, masks, reductions, state."""

import copy
import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sl_core import PlainLoss, SuperLoss, optimal_confidence, super_loss

BATCHES = st.lists(st.lists(st.floats(0, 20, width=32), max_size=6), min_size=1, max_size=6)


def batches(count: int = 5, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 9, (count,), generator=generator).tolist()
    return [torch.rand(size, generator=generator) * 3 for size in sizes]


@given(BATCHES)
def test_avg_is_the_mean_of_everything_so_far(data: list[list[float]]) -> None:
    module = SuperLoss("avg")
    for batch in data:
        module(torch.tensor(batch))
    seen = [value for batch in data for value in batch]
    assert module.count.item() == len(seen)
    assert module.tau.item() == pytest.approx(sum(seen) / max(len(seen), 1), rel=1e-5, abs=1e-6)


@given(BATCHES, st.floats(0, 0.99))
def test_expavg_keeps_momentum_and_starts_at_the_first_batch(
    data: list[list[float]], momentum: float
) -> None:
    module = SuperLoss("expavg", momentum=momentum)
    expected = None
    for batch in data:
        module(torch.tensor(batch))
        if batch:
            mean = sum(batch) / len(batch)
            expected = mean if expected is None else momentum * expected + (1 - momentum) * mean
    assert module.tau.item() == pytest.approx(expected or 0.0, rel=1e-5, abs=1e-6)


def test_tau_is_updated_before_it_is_used() -> None:
    loss = torch.tensor([1.0, 3.0])
    value = SuperLoss("expavg", lam=0.5, reduction="none")(loss)
    torch.testing.assert_close(value, super_loss(loss, 2.0, 0.5))


def test_logc_and_numbers_are_fixed() -> None:
    loss = torch.rand(10) * 5
    for module, tau in ((SuperLoss("logc", num_classes=21), math.log(21)), (SuperLoss(0.5), 0.5)):
        torch.testing.assert_close(module(loss), super_loss(loss, tau, 1.0).mean())
        assert module.tau.item() == pytest.approx(tau)


def test_evaluation_mode_changes_nothing() -> None:
    module = SuperLoss("expavg", lam="auto", warmup_steps=5)
    module(torch.rand(4))
    before = copy.deepcopy(module.state_dict())
    module.eval()
    module(torch.rand(4) * 100)
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


def test_without_gradients_nothing_changes() -> None:
    """Forwards that are no training steps, such as those that re-estimate batch norms."""
    module = SuperLoss("avg", lam="auto")
    with torch.no_grad():
        module(torch.rand(4))
    assert module.count.item() == module.steps.item() == 0


@pytest.mark.parametrize("tau", ["avg", 0.5])
def test_reset_forgets_everything(tau: str | float) -> None:
    used, fresh = (SuperLoss(tau, lam="auto", warmup_steps=3) for _ in range(2))
    for loss in batches():
        used(loss)
    used.reset()
    torch.testing.assert_close(used.state_dict(), fresh.state_dict(), rtol=0, atol=0)


def test_groups_equal_separate_modules() -> None:
    for lam in (0.25, "auto"):
        together = SuperLoss("expavg", lam, num_groups=3, reduction="none")
        apart = [SuperLoss("expavg", lam, reduction="none") for _ in range(3)]
        for seed, loss in enumerate(batches()):
            groups = torch.randint(0, 3, loss.shape, generator=torch.Generator().manual_seed(seed))
            value = together(loss, groups)
            for group, module in enumerate(apart):
                torch.testing.assert_close(value[groups == group], module(loss[groups == group]))
        torch.testing.assert_close(together.tau, torch.cat([module.tau for module in apart]))
        torch.testing.assert_close(together.count, torch.cat([module.count for module in apart]))


def test_a_group_not_seen_yet_has_its_plain_loss() -> None:
    module = SuperLoss("expavg", lam="auto", num_groups=2, reduction="none")
    module(torch.tensor([1.0, 2.0]), torch.tensor([0, 0]))
    module.eval()
    loss = torch.tensor([5.0, 7.0], requires_grad=True)
    value = module(loss, torch.tensor([1, 1]))
    torch.testing.assert_close(value, loss)
    torch.testing.assert_close(module.confidence, torch.ones(2))


def test_masked_samples_count_nowhere() -> None:
    """As if they were not there: value, gradient, tau, lam; also if they are nan."""
    mask = torch.tensor([True, False, True, False, True])
    loss = torch.tensor([1.0, math.nan, 2.0, 50.0, 0.2], requires_grad=True)
    groups = torch.tensor([0, 1, 1, 0, 0])
    for reduction in ("mean", "sum"):
        options: dict[str, Any] = {"lam": "auto", "num_groups": 2, "reduction": reduction}
        masked, short = SuperLoss(**options), SuperLoss(**options)
        value = masked(loss, groups, mask)
        torch.testing.assert_close(value, short(loss[mask], groups[mask]))
        torch.testing.assert_close(masked.state_dict(), short.state_dict())
        (gradient,) = torch.autograd.grad(value, loss)
        assert gradient[~mask].eq(0).all()
        assert gradient[mask].gt(0).all()
        assert masked.confidence is not None
        assert masked.confidence[~mask].eq(0).all()


@pytest.mark.parametrize("mask", [None, torch.zeros(0, dtype=torch.bool)])
@pytest.mark.parametrize("module_class", [SuperLoss, PlainLoss])
def test_an_empty_batch_gives_a_zero_with_a_graph(
    module_class: type[SuperLoss | PlainLoss], mask: Tensor | None
) -> None:
    module = module_class()
    module(torch.rand(4))
    before = copy.deepcopy(module.state_dict())
    weight = torch.ones(1, requires_grad=True)
    value = module(weight * torch.zeros(0), mask=mask)
    value.backward()
    assert value.item() == 0
    assert weight.grad is not None
    assert weight.grad.item() == 0
    before.pop("steps", None)
    after = {name: tensor for name, tensor in module.state_dict().items() if name != "steps"}
    torch.testing.assert_close(after, dict(before), rtol=0, atol=0)


def test_a_fully_masked_batch_gives_a_zero() -> None:
    module = SuperLoss()
    value = module(torch.rand(3, requires_grad=True), mask=torch.zeros(3, dtype=torch.bool))
    value.backward()
    assert value.item() == 0
    assert not module.initialised.any()


def test_a_non_finite_loss_shows_but_never_enters_tau() -> None:
    module = SuperLoss("avg", lam="auto", reduction="none")
    value = module(torch.tensor([1.0, math.nan, 3.0, math.inf]))
    assert value.isfinite().tolist() == [True, False, True, False]
    assert module.tau.item() == 2
    assert module.deviation.item() == 1
    assert module.count.item() == 2


def test_warmup_lowers_lam_from_near_infinity_to_its_value() -> None:
    module = SuperLoss(0.0, lam=0.25, warmup_steps=10)
    lams = []
    for _ in range(15):
        module(torch.rand(2))
        lams.append(module.effective_lam().item())
    assert lams[0] > 30 * 0.25
    assert all(later < earlier for earlier, later in itertools.pairwise(lams[:10]))
    assert lams[9:] == [0.25] * 6
    fresh = SuperLoss(0.0, lam=0.25, warmup_steps=10).eval()
    assert fresh.effective_lam().item() == math.inf


def test_reductions() -> None:
    loss = torch.rand(4, 5)
    per_sample = SuperLoss(0.5, 0.25, reduction="none")(loss)
    assert per_sample.shape == loss.shape
    torch.testing.assert_close(SuperLoss(0.5, 0.25, reduction="sum")(loss), per_sample.sum())
    torch.testing.assert_close(SuperLoss(0.5, 0.25, reduction="mean")(loss), per_sample.mean())


def test_confidence_of_the_batch_is_kept_detached() -> None:
    module = SuperLoss(1.0, 0.5)
    assert module.confidence is None
    loss = torch.rand(3, 2, requires_grad=True)
    module(loss)
    assert module.confidence is not None
    assert not module.confidence.requires_grad
    torch.testing.assert_close(module.confidence, optimal_confidence(loss, 1.0, 0.5))


@pytest.mark.parametrize("tau", ["avg", "expavg", 0.5])
def test_save_and_load_in_the_middle_continues_exactly(tau: str | float) -> None:
    options: dict[str, Any] = {"tau": tau, "lam": "auto", "warmup_steps": 4}
    straight = SuperLoss(**options)
    values = [straight(loss) for loss in batches(8)]
    first = SuperLoss(**options)
    for loss in batches(8)[:3]:
        first(loss)
    second = SuperLoss(**options)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    resumed = [second(loss) for loss in batches(8)[3:]]
    torch.testing.assert_close(resumed, values[3:], rtol=0, atol=0)


def test_scalar_losses_and_half_losses_keep_shape_and_dtype() -> None:
    assert SuperLoss(reduction="none")(torch.tensor(1.0)).shape == ()
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        module = SuperLoss("avg", reduction="none")
        assert module(torch.rand(3, dtype=dtype)).dtype == dtype
        assert module.tau.dtype == torch.float32


def test_runs_under_autocast_as_without() -> None:
    logits = torch.randn(8, 5)
    targets = torch.arange(8) % 5
    values = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            values.append(SuperLoss("expavg", 0.25)(loss))
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": "logc"}, "num_classes is None, expected at least 2"),
        ({"tau": "median"}, "tau is 'median', expected a number or 'logc' or 'avg' or 'expavg'"),
        ({"tau": None}, "tau is None, expected a number or"),
        ({"lam": 0}, "lam is 0.0, expected a number above 0"),
        ({"lam": -0.5}, "lam is -0.5, expected a number above 0"),
        ({"lam": "big"}, "lam is 'big', expected a number or 'auto'"),
        ({"lam_scale": 0}, "lam_scale is 0, expected a number above 0"),
        ({"momentum": 1.0}, r"momentum is 1.0, expected a number in \[0, 1\)"),
        ({"num_groups": 0}, "num_groups is 0, expected at least 1"),
        ({"warmup_steps": -1}, "warmup_steps is -1, expected at least 0"),
        ({"reduction": "average"}, "reduction is 'average', expected one of none, mean, sum"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SuperLoss(**options)


def test_bad_arguments_are_named() -> None:
    module = SuperLoss(num_groups=2)
    loss = torch.rand(3)
    with pytest.raises(ValueError, match="groups is None, expected a tensor: num_groups is 2"):
        module(loss)
    with pytest.raises(ValueError, match=r"groups has dtype torch\.float32, expected integers"):
        module(loss, torch.zeros(3))
    with pytest.raises(ValueError, match=r"groups has shape \(2,\), expected that of loss, \(3,\)"):
        module(loss, torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"mask has dtype torch\.int64, expected bool"):
        module(loss, torch.zeros(3, dtype=torch.long), torch.ones(3, dtype=torch.long))


def test_printed_form_tells_the_settings() -> None:
    assert "tau=expavg, lam=auto * 2, num_groups=3" in repr(
        SuperLoss(lam="auto", lam_scale=2, num_groups=3)
    )
    assert "tau=3.045, lam=0.25" in repr(SuperLoss("logc", 0.25, num_classes=21))


def test_sums_over_many_samples_are_exact() -> None:
    """A batch of RetinaNet has millions of anchors; float32 sums would be off by percents."""
    loss = torch.full((20_000_000,), 0.7)
    module = SuperLoss("avg", num_groups=2)
    module._update(loss, torch.zeros(20_000_000, dtype=torch.long), None)
    assert module.count.tolist() == [20_000_000, 0]
    assert module.tau[0].item() == pytest.approx(0.7, rel=1e-6)


def test_a_fixed_tau_is_a_setting_that_no_checkpoint_changes() -> None:
    running, other = SuperLoss("expavg"), SuperLoss("logc", num_classes=81)
    running(torch.full((4,), 7.0))
    for state in (running.state_dict(), other.state_dict()):
        fixed = SuperLoss("logc", num_classes=21)
        fixed.load_state_dict(state)
        assert fixed.tau.item() == pytest.approx(math.log(21))
        assert fixed.initialised.all()
    fresh = SuperLoss("expavg")
    fresh.load_state_dict(other.state_dict())
    fresh(torch.full((4,), 2.0))
    assert fresh.tau.item() == 2, "the first batch initialises"


@pytest.mark.parametrize("module", [SuperLoss(0.0), PlainLoss()], ids=["superloss", "none"])
def test_the_mean_of_many_half_losses_does_not_overflow(module: SuperLoss | PlainLoss) -> None:
    loss = torch.ones(200_000, dtype=torch.float16)
    single = module(loss[:1])
    for mask in (None, torch.ones(200_000, dtype=torch.bool)):
        torch.testing.assert_close(module(loss, mask=mask), single)


def test_masked_samples_need_no_valid_group_and_others_do() -> None:
    """detectron2 labels ignored boxes -1 and background with the number of classes."""
    module = SuperLoss(num_groups=3)
    loss, groups = torch.rand(5), torch.tensor([0, 1, 2, 3, -1])
    mask = torch.tensor([True, True, True, False, False])
    assert module(loss, groups, mask).isfinite()
    module.eval()
    with pytest.raises((IndexError, RuntimeError)):
        module(loss, groups)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_groups_of_any_integer_dtype(dtype: torch.dtype) -> None:
    loss, groups = torch.rand(2, 3), torch.tensor([[0, 1, 0], [1, 1, 0]])
    values = [SuperLoss(num_groups=2)(loss, g) for g in (groups, groups.to(dtype))]
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=0)


def test_half_of_a_model_keeps_the_statistics_in_float32() -> None:
    module = SuperLoss("avg", lam="auto")
    module(torch.tensor([0.1, 0.7] * 10))
    before = module.tau.clone()
    for converted in (module.half(), module.to(torch.bfloat16), module.to("cpu")):
        assert converted.tau.dtype == converted.deviation.dtype == torch.float32
        torch.testing.assert_close(converted.tau, before, rtol=0, atol=0)
    assert "tau=0.5" in repr(SuperLoss(0.5).to("meta"))

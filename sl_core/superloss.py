"""SuperLoss as a module: a threshold for every group of samples, kept over the whole training."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sl_core.checks import require
from sl_core.group_statistics import group_sums
from sl_core.reduction import check_reduction, reduce_losses
from sl_core.superloss_function import check_lam, super_loss_and_confidence

TAU_POLICIES = ("logc", "avg", "expavg")
# Before a group has so many samples, its mean absolute deviation says little.
MIN_COUNT_FOR_AUTO = 10


class SuperLoss(nn.Module):
    """Weights per-sample losses by how easy they are: ``min_s s (l - tau) + lam (log s)^2``.

    ``tau`` is where the weight is 1. In training mode a running tau (and an automatic lam) is
    updated from the finite, unmasked losses of the batch before it is used; in evaluation mode and
    under ``torch.no_grad`` nothing changes. In a distributed run the update is made from the sums
    over all processes, so that N processes equal one with N times the batch; then every process
    must call ``forward`` in every step, if need be with an empty tensor. Everything that is
    learned (``tau``, ``count``, ``initialised``, ``deviation``, ``steps``) is a buffer and part of
    the state dict.

    A group without any sample so far has weight 1, which with a running tau is its plain loss. An
    automatic lam sets in when a group has had 10 samples. An empty batch changes no
    tau and gives a zero that has a graph. A non-finite loss shows in the result, but never enters
    tau.

    Args:
        tau: a number; ``"logc"``, the log of ``num_classes`` (background included, for softmax
            detectors); ``"avg"``, the mean of all losses so far; or ``"expavg"``, the exponential
            mean over batches, which starts at the first batch's mean.
        lam: above 0; small separates easy from hard sharply, inf is the plain loss. ``"auto"``
            is ``lam_scale`` times the running mean absolute deviation of the group's losses from
            tau, and so follows the scale of the losses.
        lam_scale: factor of an automatic lam, above 0.
        momentum: part of the old value that an exponential mean keeps, in [0, 1).
        num_classes: number of classes, for ``tau="logc"`` only.
        num_groups: number of groups; each has its own tau and automatic lam.
        warmup_steps: number of training steps over which lam falls smoothly from inf to its value.
        reduction: none, mean (over unmasked samples) or sum.

    Attributes:
        confidence: the weights of the latest batch, in the shape of its loss, in (0, e], 0 for
            masked samples; detached. None before the first forward.
    """

    tau: Tensor
    count: Tensor
    initialised: Tensor
    deviation: Tensor
    steps: Tensor

    def __init__(
        self,
        tau: float | str = "expavg",
        lam: float | str = 1.0,
        *,
        lam_scale: float = 1.0,
        momentum: float = 0.9,
        num_classes: int | None = None,
        num_groups: int = 1,
        warmup_steps: int = 0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.policy, self.first_tau = _parse_tau(tau, num_classes)
        require(lam_scale > 0, "lam_scale", lam_scale, "a number above 0")
        require(0 <= momentum < 1, "momentum", momentum, "a number in [0, 1)")
        require(num_groups >= 1, "num_groups", num_groups, "at least 1")
        require(warmup_steps >= 0, "warmup_steps", warmup_steps, "at least 0")
        self.lam = None if lam == "auto" else check_lam(_number("lam", lam, ("auto",)))
        self.lam_scale = lam_scale
        self.momentum = momentum
        self.num_groups = num_groups
        self.warmup_steps = warmup_steps
        self.reduction = check_reduction(reduction)
        self.confidence: Tensor | None = None
        self.register_buffer("tau", torch.full((num_groups,), self.first_tau))
        self.register_buffer("count", torch.zeros(num_groups, dtype=torch.long))
        self.register_buffer("initialised", torch.full((num_groups,), not self._is_running))
        self.register_buffer("deviation", torch.zeros(num_groups))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(
        self, loss: Tensor, groups: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Weight and reduce per-sample losses.

        Args:
            loss: any shape and floating dtype.
            groups: integers in [0, num_groups), shape of ``loss``; needed if num_groups > 1.
            mask: bool, shape of ``loss``; samples that are False count nowhere and get weight 0.

        Returns:
            A scalar, or for reduction none the shape of ``loss``; in the dtype of ``loss``.
        """
        self._check_arguments(loss, groups, mask)
        if groups is not None:
            groups = groups.long()
        if mask is not None:
            loss = loss.masked_fill(~mask, 0)
            groups = None if groups is None else groups.masked_fill(~mask, 0)
        if self.training and torch.is_grad_enabled():
            self._update(loss, groups, mask)
        tau, lam = _of_samples(self.tau, groups), _of_samples(self.effective_lam(), groups)
        value, confidence = super_loss_and_confidence(loss, tau, lam)
        if mask is not None:
            value, confidence = value.masked_fill(~mask, 0), confidence.masked_fill(~mask, 0)
        self.confidence = confidence
        return reduce_losses(value, self.reduction, mask)

    def reset(self) -> None:
        """Forget everything learned, for a new training that starts from an old one's weights."""
        self.tau.fill_(self.first_tau)
        self.count.zero_()
        self.initialised.fill_(not self._is_running)
        self.deviation.zero_()
        self.steps.zero_()

    @torch.no_grad()
    def effective_lam(self) -> Tensor:
        """The lam of each group that a forward uses now: (num_groups,), inf where it is off."""
        if self.lam is None:
            # Equal losses differ from their mean by rounding, which must not look like a lot.
            smallest = (1e-3 * self.tau.abs()).clamp(min=1e-12)
            lam = (self.lam_scale * self.deviation).clamp(min=smallest)
            lam = lam.masked_fill(self.count < MIN_COUNT_FOR_AUTO, math.inf)
        else:
            lam = torch.full_like(self.tau, self.lam)
        if self.warmup_steps:
            progress = (self.steps / self.warmup_steps).clamp(max=1)
            lam = lam / (progress * progress * (3 - 2 * progress))
        return lam.masked_fill(~self.initialised, math.inf)

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        tau = f"{self.first_tau:.4g}" if self.policy == "fixed" else self.policy
        lam = f"auto * {self.lam_scale:g}" if self.lam is None else f"{self.lam:g}"
        return f"tau={tau}, lam={lam}, num_groups={self.num_groups}, reduction={self.reduction}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SuperLoss":
        """Move to a device, but keep the statistics in float32: model.half() is for layers."""
        kept = {name: getattr(self, name) for name in ("tau", "deviation")}
        super()._apply(fn, recurse)
        for name, value in kept.items():
            if not value.is_meta:
                setattr(self, name, value.to(getattr(self, name).device))
        return self

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        """Load the statistics; a fixed tau is a setting and stays as it was set."""
        super()._load_from_state_dict(*arguments, **options)
        if self.policy == "fixed":
            self.tau.fill_(self.first_tau)
        self.initialised.fill_(True)
        if self._is_running:
            self.initialised &= self.count > 0

    @property
    def _is_running(self) -> bool:
        return self.policy != "fixed" or self.lam is None

    @torch.no_grad()
    def _update(self, loss: Tensor, groups: Tensor | None, mask: Tensor | None) -> None:
        """Move tau and deviation towards the batch, each group by its own rate."""
        if self._is_running:
            wide = loss.detach().to(torch.promote_types(loss.dtype, torch.float32)).flatten()
            valid = wide.isfinite() if mask is None else wide.isfinite() & mask.flatten()
            flat_groups = None if groups is None else groups.flatten()
            sums, numbers = group_sums(wide, flat_groups, valid, self.num_groups)
            self.count += numbers.long()
            rate = self._rate(numbers)
            if self.policy != "fixed":
                self._move(self.tau, sums, numbers, rate)
            if self.lam is None:
                away = (wide - _of_samples(self.tau, flat_groups)).abs()
                sums, numbers = group_sums(away, flat_groups, valid, self.num_groups)
                # At first like a plain mean: a first batch of one sample has no deviation.
                rate = torch.maximum(rate, numbers / self.count.clamp(min=1))
                self._move(self.deviation, sums, numbers, rate)
            self.initialised |= numbers > 0
        self.steps += 1

    def _rate(self, numbers: Tensor) -> Tensor:
        """How far each group moves towards the batch: 1 at its first samples, 0 without any."""
        if self.policy == "avg":
            return numbers / self.count.clamp(min=1)
        rate = torch.full_like(numbers, 1 - self.momentum).masked_fill(~self.initialised, 1)
        return rate.masked_fill(numbers == 0, 0)

    @staticmethod
    def _move(running: Tensor, sums: Tensor, numbers: Tensor, rate: Tensor) -> None:
        running += rate * (sums / numbers.clamp(min=1) - running)

    def _check_arguments(self, loss: Tensor, groups: Tensor | None, mask: Tensor | None) -> None:
        if groups is None and self.num_groups > 1:
            raise ValueError(f"groups is None, expected a tensor: num_groups is {self.num_groups}")
        if groups is not None and (groups.is_floating_point() or groups.dtype == torch.bool):
            raise ValueError(f"groups has dtype {groups.dtype}, expected integers")
        if mask is not None and mask.dtype != torch.bool:
            raise ValueError(f"mask has dtype {mask.dtype}, expected bool")
        for name, tensor in (("groups", groups), ("mask", mask)):
            if tensor is not None and tensor.shape != loss.shape:
                found, expected = tuple(tensor.shape), tuple(loss.shape)
                raise ValueError(f"{name} has shape {found}, expected that of loss, {expected}")


def _of_samples(of_groups: Tensor, groups: Tensor | None) -> Tensor:
    """The value of each sample's group; without groups that of the only one, as a scalar."""
    if groups is None:
        return of_groups[0]
    # index_select is ten times as fast as indexing, and refuses negative groups.
    return of_groups.index_select(0, groups.flatten()).reshape(groups.shape)


def _parse_tau(tau: float | str, num_classes: int | None) -> tuple[str, float]:
    """The policy (fixed, avg or expavg) and the first value."""
    if tau == "logc":
        expected = 'at least 2 for tau="logc"'
        require(num_classes is not None and num_classes >= 2, "num_classes", num_classes, expected)
        return "fixed", math.log(num_classes or 0)
    if isinstance(tau, str) and tau in TAU_POLICIES:
        return tau, 0.0
    return "fixed", _number("tau", tau, TAU_POLICIES)


def _number(name: str, value: float | str, words: tuple[str, ...]) -> float:
    expected = f"a number or {' or '.join(map(repr, words))}"
    require(isinstance(value, int | float) and not math.isnan(value), name, value, expected)
    return float(value)

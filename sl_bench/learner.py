"""One network and everything that is learned along with it; one step of its training."""

import math
from pathlib import Path
from typing import Any

import torch
from fvcore.common.config import CfgNode
from torch import Tensor, nn

from sl_bench import distributed
from sl_bench.checkpoint import load_weights
from sl_bench.criterion import build_criterion
from sl_bench.data import Targets
from sl_bench.data_parameters import DataParameters
from sl_bench.evaluation import as_targets
from sl_bench.label_confidence import LabelConfidence
from sl_bench.networks import build_network, has_batch_norm
from sl_bench.solver import build_optimizer
from sl_core import SuperLoss


class Learner:
    """A network in training on images with given targets.

    Args:
        cfg: MODEL, LOSS and SOLVER.
        shape: (channels, height, width) of the images.
        targets: (N,) of the training set.
        num_classes: 0 for regression.
        device: where it is trained.

    Attributes:
        targets: as given.
        network: is in training mode after each step.
        label_confidence: what was recorded of each image, for losses with a confidence.

    Raises:
        ValueError: the network does not fit the images, its weights, or the processes.
    """

    def __init__(
        self,
        cfg: CfgNode,
        shape: tuple[int, int, int],
        targets: Targets,
        num_classes: int,
        device: torch.device,
    ) -> None:
        self.batch_size = cfg.SOLVER.BATCH_SIZE
        self.device = device
        self.targets = targets
        self._targets = as_targets(targets).to(device)
        self.network = _shared(build_network_from(cfg, shape, num_classes), cfg, device)
        self.criterion = build_criterion(cfg, num_classes).to(device)
        self.optimizer = build_optimizer(cfg.SOLVER, self.network.parameters())
        self.label_confidence = LabelConfidence(len(targets))
        self.data_parameters: DataParameters | None = None
        if cfg.LOSS.NAME == "data_params":
            self.data_parameters = DataParameters(
                len(targets),
                num_classes,
                cfg.LOSS.DATA_PARAMS_LR,
                cfg.LOSS.DATA_PARAMS_CLASS_LR,
                cfg.LOSS.DATA_PARAMS_MOMENTUM,
                cfg.LOSS.DATA_PARAMS_LIMIT,
            ).to(device)

    @property
    def has_confidence(self) -> bool:
        """Whether the loss gives each image a confidence."""
        return self.criterion.name in ("superloss", "data_params")

    def step(self, batch: Tensor, images: Tensor, rate: float) -> Tensor:
        """One step of the optimizer.

        Args:
            batch: (B,) positions of this process's images in the training set.
            images: (B, *shape) on the device.
            rate: learning rate.

        Returns:
            The sums of the plain and of the robust losses, in float64 on the CPU.

        Raises:
            FloatingPointError: the loss is not finite.
        """
        self.network.train()
        self.criterion.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        indices = batch.to(self.device)
        targets = self._targets[indices]
        learned = self.data_parameters
        confidence = None if learned is None else learned.confidence(indices, targets)
        losses = self.criterion(self.network(images), targets, confidence)
        total = losses.sum()
        value = total.item()
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss is {value}; a smaller SOLVER.BASE_LR may help")
        self.optimizer.zero_grad()
        # Divided by the size of the whole batch, since the processes' gradients are added up.
        (total / self.batch_size).backward()
        distributed.sum_gradients(self.network.parameters())
        self.optimizer.step()
        if learned is not None:
            learned.step()
        plain = self.criterion.plain_losses
        if self.criterion.confidence is not None:
            self.label_confidence.record(batch, self.criterion.confidence, plain)
        return torch.tensor([plain.sum().item(), value], dtype=torch.float64)

    def thresholds(self) -> dict[str, float]:
        """tau and lambda of SuperLoss, for the log."""
        robust = self.criterion.robust
        if not isinstance(robust, SuperLoss):
            return {}
        return {"sl/tau": robust.tau.item(), "sl/lambda": robust.effective_lam().item()}

    def state(self) -> dict[str, Any]:
        """Everything that a later ``load_state`` needs: tensors, numbers, text, containers."""
        learned = self.data_parameters
        return {
            "targets": torch.from_numpy(self.targets),
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "criterion": self.criterion.state_dict(),
            "label_confidence": self.label_confidence.sums,
            "data_parameters": {} if learned is None else learned.state_dict(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over all but the targets of the state of a learner with the same settings."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.criterion.load_state_dict(state["criterion"])
        self.label_confidence.sums = state["label_confidence"]
        if self.data_parameters is not None:
            self.data_parameters.load_state_dict(state["data_parameters"])


def build_network_from(cfg: CfgNode, shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """The network of MODEL with its weights, on the CPU; one output for regression."""
    network = build_network(cfg.MODEL.NAME, shape, num_classes or 1, cfg.MODEL.DROPOUT)
    if cfg.MODEL.WEIGHTS != "none":
        load_weights(network, Path(cfg.MODEL.WEIGHTS))
    return network


def _shared(network: nn.Module, cfg: CfgNode, device: torch.device) -> nn.Module:
    """On the device; with batch norm that is shared by all processes."""
    if has_batch_norm(network) and distributed.world_size() > 1:
        if device.type != "cuda":
            raise ValueError(
                f"MODEL.NAME is {cfg.MODEL.NAME}, whose batch norm would see another batch on each "
                "process; expected small_cnn, one process, or GPUs"
            )
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    return network.to(device)

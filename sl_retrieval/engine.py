"""The trainer: epochs of mined tuples, validation, checkpoints from which it goes on exactly."""

import logging
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fvcore.common.config import CfgNode
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from sl_core import SuperLoss
from sl_core.json_files import write_json
from sl_retrieval import distributed
from sl_retrieval.build import (
    build_criterion,
    build_network_from,
    device_from,
    readable_data,
)
from sl_retrieval.checkpoint import load_checkpoint, save_checkpoint
from sl_retrieval.criterion import POSITIVE
from sl_retrieval.extraction import ImageTensors, describe_images, extract_descriptors
from sl_retrieval.label_confidence import LabelConfidence
from sl_retrieval.network import freeze_batch_norm
from sl_retrieval.same_training import check_same_training, identity
from sl_retrieval.solver import build_optimizer, set_learning_rates
from sl_retrieval.state_files import fit_state
from sl_retrieval.tuple_loader import TupleBatch, load_tuples
from sl_retrieval.tuples import EpochTuples, Indices, check_draws, draw_epoch, mine_epoch
from sl_retrieval.validation import Validation
from sl_retrieval.warmup import warm_up

LAST, BEST, WARM = "model_last.pth.tar", "model_best.pth.tar", "model_warmup.pth.tar"
logger = logging.getLogger(__name__)


class RetrievalTrainer:
    """Trains a network on tuples of a labelled image set.

    Everything that chance decides in an epoch is a function of (SEED, epoch), and the checkpoint
    at its end holds the rest; so a training that was killed and resumed equals one that was not,
    bit for bit on a CPU. N processes with TUPLES_PER_FORWARD t equal one with N t, as long as
    statistics of batch normalisation are frozen.

    Args:
        cfg: of ``load_config``; OUTPUT_DIR gets model_last.pth.tar, model_best.pth.tar,
            metrics.json, label_confidence.json and TensorBoard's files.

    Attributes:
        history: one dict of numbers for each epoch that is done.
    """

    def __init__(self, cfg: CfgNode) -> None:
        self.cfg = cfg
        self.device = device_from(cfg)
        if cfg.MODEL.BATCH_NORM == "train" and distributed.world_size() > 1:
            raise ValueError(
                'MODEL.BATCH_NORM is "train", which gives each process statistics of its own; '
                'expected "frozen" with several processes'
            )
        if cfg.SOLVER.AMP and self.device.type != "cuda":
            raise ValueError(f"SOLVER.AMP is True, which needs a GPU; the device is {self.device}")
        together = cfg.SOLVER.TUPLES_PER_FORWARD * distributed.world_size()
        if cfg.SOLVER.BATCH_SIZE % together:
            raise ValueError(
                f"SOLVER.BATCH_SIZE is {cfg.SOLVER.BATCH_SIZE}, expected a multiple of {together}: "
                f"TUPLES_PER_FORWARD times {distributed.world_size()} processes"
            )
        self.forwards_per_step = cfg.SOLVER.BATCH_SIZE // together
        self.output = Path(cfg.OUTPUT_DIR)
        self.data = readable_data(cfg, cfg.DATASETS.TRAIN)
        mining = cfg.MINING
        drawn = (mining.NUM_QUERIES, mining.POOL_SIZE, cfg.SEED, range(cfg.SOLVER.EPOCHS))
        check_draws(self.data, mining.NEGATIVES, *drawn)
        torch.manual_seed(cfg.SEED)
        self.network = build_network_from(cfg).to(self.device)
        self.criterion = build_criterion(cfg).to(self.device)
        solver = cfg.SOLVER
        self.optimizer = build_optimizer(
            self.network, solver.OPTIMIZER, solver.BASE_LR, solver.WEIGHT_DECAY, solver.MOMENTUM
        )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=cfg.SOLVER.AMP)
        self.images = ImageTensors(
            self.data.images,
            cfg.INPUT.IMAGE_SIZE,
            self.network.meta["mean"],
            self.network.meta["std"],
        )
        self.label_confidence = LabelConfidence(self.data)
        self.validation = (
            Validation(cfg, readable_data(cfg, cfg.DATASETS.VAL), self.network, self.criterion)
            if cfg.DATASETS.VAL
            else None
        )
        self.history: list[dict[str, Any]] = []
        self.is_warm = cfg.WARMUP.EPOCHS == 0

    def resume(self) -> None:
        """Go on from the last checkpoint of OUTPUT_DIR, if there is one."""
        file = self.output / LAST
        if not file.exists():
            warm = self.output / WARM
            if warm.exists() and self.cfg.WARMUP.EPOCHS:
                fit_state(self.network, load_checkpoint(warm)["state_dict"], warm, "the network")
                self.is_warm = True
            logger.info("no finished epoch in %s; starting", self.output)
            return
        checkpoint = load_checkpoint(file)
        state = checkpoint.get("trainer")
        if state is None:
            raise ValueError(f"{file} was not written by this trainer: it has no 'trainer'")
        check_same_training(file, state["identity"], self.cfg, self.data)
        architecture = self.network.meta["architecture"]
        fit_state(self.network, checkpoint["state_dict"], file, architecture)
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.criterion.load_state_dict(checkpoint["superloss"])
        self.scaler.load_state_dict(state["scaler"])
        self.label_confidence.sums = state["label_confidence"]
        self.history = state["history"]
        logger.info("going on after epoch %d of %s", len(self.history), file)

    def train(self) -> list[dict[str, Any]]:
        """Run the epochs that are missing and return the history."""
        epochs = self.cfg.SOLVER.EPOCHS
        if not self.history and not self.is_warm:
            self._warm_up()
        is_main = distributed.rank() == 0
        writer = None
        if is_main:
            self.output.mkdir(parents=True, exist_ok=True)
            (self.output / "config.yaml").write_text(self.cfg.dump(), encoding="utf-8")
            writer = SummaryWriter(str(self.output), purge_step=len(self.history))
        for epoch in range(len(self.history), epochs):
            start = time.perf_counter()
            _seed_everything(self.cfg.SEED, epoch)
            set_learning_rates(self.optimizer, self.cfg.SOLVER.DECAY, epoch)
            row = {"epoch": epoch, "lr": self.optimizer.param_groups[0]["lr"]}
            row |= self._train_epoch(self._mine(epoch), f"epoch {epoch + 1}/{epochs}")
            if self.validation and (
                (epoch + 1) % self.cfg.VALIDATION.PERIOD == 0 or epoch + 1 == epochs
            ):
                row |= self.validation.run()
            row["seconds"] = time.perf_counter() - start
            self.history.append(row)
            if writer is not None:
                self._write(writer, row)
            logger.info("%s", "  ".join(f"{k}: {v:.4g}" for k, v in row.items()))
        if writer is not None:
            writer.close()
            if not self.history:
                self._save(self.output / BEST)
        return self.history

    def _warm_up(self) -> None:
        """Learn to classify first; all processes get the first one's weights."""
        options = self.cfg.WARMUP
        if distributed.rank() == 0:
            warm_up(
                self.network,
                readable_data(self.cfg, options.DATASET) if options.DATASET else self.data,
                epochs=options.EPOCHS,
                lr=options.BASE_LR,
                batch_size=options.BATCH_SIZE,
                size=options.IMAGE_SIZE or self.cfg.INPUT.IMAGE_SIZE,
                workers=self.cfg.DATALOADER.NUM_WORKERS,
                seed=self.cfg.SEED,
                lam=options.LAMBDA,
            )
            self.output.mkdir(parents=True, exist_ok=True)
            save_checkpoint(
                self.output / WARM, self.network, epoch=0, min_loss=math.inf, optimizer={}
            )
        distributed.share_state(self.network)

    def _mine(self, epoch: int) -> EpochTuples:
        mining = self.cfg.MINING
        draw = draw_epoch(self.data, mining.NUM_QUERIES, mining.POOL_SIZE, self.cfg.SEED, epoch)

        def describe(indices: Indices) -> Tensor:
            return extract_descriptors(
                self.network,
                [self.data.images[index] for index in indices],
                size=self.cfg.INPUT.IMAGE_SIZE,
                batch_size=self.cfg.TEST.BATCH_SIZE,
                workers=self.cfg.DATALOADER.NUM_WORKERS,
                title=f"epoch {epoch + 1}: descriptors" if distributed.rank() == 0 else None,
            )

        is_random = epoch < mining.RANDOM_EPOCHS
        return mine_epoch(self.data, draw, mining.NEGATIVES, None if is_random else describe)

    def _train_epoch(self, tuples: EpochTuples, title: str) -> dict[str, float]:
        self.network.train()
        if self.cfg.MODEL.BATCH_NORM == "frozen":
            freeze_batch_norm(self.network)
        self.criterion.train()
        solver = self.cfg.SOLVER
        batches = load_tuples(
            self.images, tuples, solver.TUPLES_PER_FORWARD, self.cfg.DATALOADER.NUM_WORKERS
        )
        totals = torch.zeros(3, dtype=torch.float64)  # tuples, plain loss, robust loss
        shown = tqdm(batches, desc=title, unit="step", leave=False, disable=distributed.rank() > 0)
        waiting = 0
        for batch in shown:
            totals += self._forward_backward(batch)
            waiting += 1
            if waiting == self.forwards_per_step:
                self._step()
                waiting = 0
        if waiting:
            self._step()
        self.label_confidence.end_epoch()
        count, plain, robust = distributed.sum_over_processes(totals).tolist()
        numbers = {"loss": plain / count, "robust_loss": robust / count}
        if self.data.is_wrong.any():
            numbers["wrong_among_least_confident"] = self.label_confidence.precision()
        return numbers | _thresholds(self.criterion.robust)

    def _forward_backward(self, batch: TupleBatch) -> Tensor:
        """Gradients of one batch; returns the numbers that are summed over the epoch."""
        label = batch.label.to(self.device)
        with torch.autocast(self.device.type, enabled=self.cfg.SOLVER.AMP):
            if batch.images:
                images = [image.to(self.device) for image in batch.images]
                descriptors = describe_images(self.network, images)
            else:
                descriptors = torch.zeros(
                    self.network.meta["outputdim"], 0, device=self.device, requires_grad=True
                )
        loss = self.criterion(descriptors, label)
        value = loss.item()
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss is {value}; a smaller SOLVER.BASE_LR may help")
        self.scaler.scale(loss).backward()
        with torch.no_grad():
            losses, kinds = self.criterion.losses_and_groups(descriptors, label)
        if self.criterion.loss == "contrastive" and self.criterion.confidence is not None:
            positive = kinds == POSITIVE
            self.label_confidence.record(
                batch.indices[:, :2], self.criterion.confidence[positive], losses[positive]
            )
        numbers = [len(batch.indices), losses.sum().item(), value]
        return torch.tensor(numbers, dtype=torch.float64)

    def _step(self) -> None:
        distributed.sum_gradients(self.network.parameters())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def _write(self, writer: SummaryWriter, row: dict[str, Any]) -> None:
        """Everything about the epoch that ended; the checkpoint last, as it says that it ended."""
        for key, value in row.items():
            writer.add_scalar(key, value, len(self.history) - 1)
        writer.flush()
        self.label_confidence.write(self.output / "label_confidence.json")
        if _is_best(self.history, self.cfg.VALIDATION.BEST_BY):
            self._save(self.output / BEST)
        write_json(self.output / "metrics.json", self.history)
        self._save(self.output / LAST)

    def _save(self, file: Path) -> None:
        losses = [row["val_loss"] for row in self.history if "val_loss" in row]
        save_checkpoint(
            file,
            self.network,
            epoch=len(self.history),
            min_loss=min(losses, default=math.inf),
            optimizer=self.optimizer.state_dict(),
            superloss=self.criterion.state_dict(),
            trainer={
                "identity": identity(self.cfg, self.data),
                "history": self.history,
                "label_confidence": self.label_confidence.sums,
                "scaler": self.scaler.state_dict(),
            },
        )


def _is_best(history: list[dict[str, Any]], best_by: str) -> bool:
    """Whether the latest epoch is the best that was validated; the first always is."""
    key, sign = ("val_map", 1) if best_by == "map" else ("val_loss", -1)
    values = [sign * row[key] for row in history if key in row and not math.isnan(row[key])]
    latest = history[-1].get(key, math.nan)
    return not values or sign * latest >= max(values)


def _thresholds(robust: torch.nn.Module) -> dict[str, float]:
    """tau of SuperLoss, by kind of pair, for the log."""
    if not isinstance(robust, SuperLoss):
        return {}
    kinds = ("positive", "negative") if robust.num_groups == 2 else ("all",)
    values: Iterator[tuple[str, float]] = zip(kinds, robust.tau.tolist(), strict=True)
    return {f"sl/tau_{kind}": value for kind, value in values}


def _seed_everything(seed: int, epoch: int) -> None:
    combined = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
    random.seed(combined)
    np.random.seed(combined)  # noqa: NPY002 - for transforms of users that draw from it
    torch.manual_seed(combined)

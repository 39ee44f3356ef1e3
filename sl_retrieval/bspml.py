"""Balanced self-paced metric learning (bspml.txt, algorithm 1), and the methods next to it."""

import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fvcore.common.config import CfgNode
from numpy.typing import NDArray
from pytorch_metric_learning.samplers import MPerClassSampler
from torch import Tensor
from torch.optim import SGD, Adam
from tqdm import tqdm

from sl_core.json_files import write_json
from sl_retrieval.build import device_from, readable_data
from sl_retrieval.clustering_metrics import embedding_metrics
from sl_retrieval.data import RetrievalData
from sl_retrieval.embedding_network import EmbeddingNet, build_embedding_network
from sl_retrieval.metric_methods import build_method
from sl_retrieval.network import freeze_batch_norm
from sl_retrieval.same_training import check_same_training, identity
from sl_retrieval.self_pacing import SelfPacing
from sl_retrieval.solver import set_learning_rates
from sl_retrieval.square_images import Draw, SquareImages, embed_images, load_batches
from sl_retrieval.state_files import fit_state, read_state_file, write_state_file

LAST = "model_last.pth"
_BATCHES, _WEIGHTS = 0, 1  # separate streams of one seed
logger = logging.getLogger(__name__)


class MetricTrainer:
    """Trains an embedding network on a labelled image set; weighs the samples, if METHOD does.

    An epoch is an iteration of algorithm 1: STEPS_PER_EPOCH batches of P x K images (algorithm 2),
    then, for spms and bspml, an update of the samples' weights (algorithm 3). Everything that
    chance decides in an epoch is a function of (SEED, epoch), and the checkpoint at its end holds
    the rest; so a training that was killed and resumed equals one that was not, bit for bit on a
    CPU.

    Args:
        cfg: of ``load_metric_config``; OUTPUT_DIR gets model_last.pth, history.json and, for spms
            and bspml, sample_weights.json.

    Attributes:
        history: one dict of numbers for each epoch that is done.
    """

    def __init__(self, cfg: CfgNode) -> None:
        self.cfg = cfg
        self.device = device_from(cfg)
        self.output = Path(cfg.OUTPUT_DIR)
        self.data = readable_data(cfg, cfg.DATASETS.TRAIN)
        self.labels = torch.from_numpy(self.data.labels)
        used = len(np.unique(self.data.labels))
        if used < cfg.SAMPLER.CLASSES:
            raise ValueError(
                f"SAMPLER.CLASSES is {cfg.SAMPLER.CLASSES}, expected at most {used}, the classes "
                f"of {self.data.name}"
            )
        torch.manual_seed(cfg.SEED)
        self.network = build_embedding_network(
            cfg.MODEL.ARCHITECTURE, cfg.MODEL.EMBEDDING, cfg.MODEL.WEIGHTS
        ).to(self.device)
        self.method = build_method(cfg).to(self.device)
        self.pacing = SelfPacing.of(cfg, self.data, self.method)
        solver, parameters = cfg.SOLVER, self.network.parameters()
        self.optimizer = (
            SGD(parameters, solver.BASE_LR, solver.MOMENTUM, weight_decay=solver.WEIGHT_DECAY)
            if solver.OPTIMIZER == "sgd"
            else Adam(parameters, solver.BASE_LR, weight_decay=solver.WEIGHT_DECAY)
        )
        self.evaluation = Evaluation(cfg)
        self.plain_images = square_images(cfg, self.data, self.network)
        is_random = cfg.INPUT.AUGMENT != "none"
        self.images = (
            square_images(cfg, self.data, self.network, cfg.INPUT.AUGMENT)
            if is_random
            else self.plain_images
        )
        self.history: list[dict[str, Any]] = []

    def resume(self) -> None:
        """Go on from the last checkpoint of OUTPUT_DIR, if there is one."""
        file = self.output / LAST
        if not file.exists():
            logger.info("no finished epoch in %s; starting", self.output)
            return
        state = read_state_file(file)
        if "identity" not in state:
            raise ValueError(f"{file} was not written by this trainer: it has no 'identity'")
        check_same_training(file, state["identity"], self.cfg, self.data)
        fit_state(self.network, state["state_dict"], file, self.cfg.MODEL.ARCHITECTURE)
        self.optimizer.load_state_dict(state["optimizer"])
        self.method.load_state_dict(state["method"])
        if self.pacing is not None:
            self.pacing.weights = state["weights"].numpy()
        self.history = state["history"]
        logger.info("going on after epoch %d of %s", len(self.history), file)

    def train(self) -> list[dict[str, Any]]:
        """Run the epochs that are missing and return the history."""
        epochs = self.cfg.SOLVER.EPOCHS
        self.output.mkdir(parents=True, exist_ok=True)
        (self.output / "config.yaml").write_text(self.cfg.dump(), encoding="utf-8")
        for epoch in range(len(self.history), epochs):
            start = time.perf_counter()
            set_learning_rates(self.optimizer, self.cfg.SOLVER.DECAY, epoch)
            row = {"epoch": epoch, "lr": self.optimizer.param_groups[0]["lr"]}
            row["loss"] = self._train_epoch(epoch, f"epoch {epoch + 1}/{epochs}")
            row |= self._update_weights(epoch)
            if (epoch + 1) % self.cfg.TEST.PERIOD == 0 or epoch + 1 == epochs:
                row |= self.evaluation.run(self.network)
            row["seconds"] = time.perf_counter() - start
            self.history.append(row)
            self._write()
            logger.info("%s", "  ".join(f"{k}: {v:.4g}" for k, v in row.items()))
        return self.history

    def _train_epoch(self, epoch: int, title: str) -> float:
        """Algorithm 2; returns the mean loss."""
        self.network.train()
        if self.cfg.MODEL.BATCH_NORM == "frozen":
            freeze_batch_norm(self.network)
        batches = self._draw_batches(epoch)
        weights = (
            torch.ones(len(self.labels))
            if self.pacing is None
            else torch.from_numpy(self.pacing.weights).float()
        )
        loader = load_batches(self.images, batches, self.cfg.DATALOADER.NUM_WORKERS)
        total = 0.0
        shown = tqdm(zip(batches, loader, strict=True), total=len(batches), desc=title, leave=False)
        for batch, images in shown:
            indices = torch.tensor([index for index, _ in batch])
            loss: Tensor = self.method(
                self.network(images.to(self.device)),
                self.labels[indices].to(self.device),
                weights[indices].to(self.device),
            )
            value = loss.item()
            if not math.isfinite(value):
                raise FloatingPointError(f"the loss is {value}; a smaller SOLVER.BASE_LR may help")
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += value
        return total / len(batches)

    def _draw_batches(self, epoch: int) -> list[list[Draw]]:
        sampler = self.cfg.SAMPLER
        size = sampler.CLASSES * sampler.PER_CLASS
        sequence = np.random.SeedSequence([self.cfg.SEED, epoch, _BATCHES])
        seeds = sequence.generate_state(self.cfg.SOLVER.STEPS_PER_EPOCH * size)
        # The sampler draws from numpy's global generator, and its next pass depends on the last.
        np.random.seed(seeds[0])  # noqa: NPY002
        drawn = MPerClassSampler(self.data.labels, sampler.PER_CLASS, size, len(seeds))
        draws = [(int(index), int(seed)) for index, seed in zip(drawn, seeds, strict=True)]
        return [draws[start : start + size] for start in range(0, len(draws), size)]

    def _update_weights(self, epoch: int) -> dict[str, float]:
        if self.pacing is None:
            return {}
        embeddings = embed_images(
            self.network,
            self.plain_images,
            self.cfg.TEST.BATCH_SIZE,
            self.cfg.DATALOADER.NUM_WORKERS,
            f"epoch {epoch + 1}: embeddings",
        )
        generator = np.random.default_rng([self.cfg.SEED, epoch, _WEIGHTS])
        return self.pacing.update(embeddings.to(self.device), epoch, generator)

    def _write(self) -> None:
        """Everything about the epoch that ended; the checkpoint last, as it says that it ended."""
        write_json(self.output / "history.json", self.history)
        if self.pacing is not None:
            self.pacing.write(self.output / "sample_weights.json")
        state = {
            "meta": self.network.meta,
            "state_dict": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": self.method.state_dict(),
            "identity": identity(self.cfg, self.data),
            "history": self.history,
        }
        if self.pacing is not None:
            state["weights"] = torch.from_numpy(self.pacing.weights)
        write_state_file(self.output / LAST, state)


class Evaluation:
    """Recall@K and NMI on DATASETS.TEST, by its true labels where they are known."""

    def __init__(self, cfg: CfgNode) -> None:
        self.cfg = cfg
        self.data = readable_data(cfg, cfg.DATASETS.TEST)
        most = max(cfg.TEST.RECALLS)
        if len(self.data.images) <= most:
            raise ValueError(
                f"TEST.RECALLS has {most}, expected less than the {len(self.data.images)} images "
                f"of {self.data.name}"
            )
        self.images: SquareImages | None = None

    def run(self, network: EmbeddingNet) -> dict[str, float]:
        """recall@1, ..., nmi; the network is left in evaluation mode."""
        if self.images is None:
            self.images = square_images(self.cfg, self.data, network)
        test, workers = self.cfg.TEST, self.cfg.DATALOADER.NUM_WORKERS
        embeddings = embed_images(network, self.images, test.BATCH_SIZE, workers, "test")
        clean = self.data.clean_labels
        labels: NDArray[np.int64] = self.data.labels if clean is None else clean
        recalls: Sequence[int] = test.RECALLS
        return embedding_metrics(embeddings.numpy(), labels, recalls, self.cfg.SEED)


def square_images(
    cfg: CfgNode, data: RetrievalData, network: EmbeddingNet, augment: str = "none"
) -> SquareImages:
    """The images of a data set, as INPUT asks for them."""
    mean, std = network.meta["mean"], network.meta["std"]
    size, in_memory = cfg.INPUT.IMAGE_SIZE, cfg.INPUT.IN_MEMORY
    return SquareImages(data.images, size, mean, std, augment, in_memory)


def load_embedding_network(file: Path) -> EmbeddingNet:
    """Rebuild the network of a checkpoint of this trainer, on the CPU.

    Raises:
        ValueError: the file is missing, damaged, or no such checkpoint.
    """
    state = read_state_file(file)
    meta = state.get("meta")
    if not isinstance(meta, dict) or not {"architecture", "dimensions"} <= meta.keys():
        found = ", ".join(list(state)[:5]) or "nothing"
        raise ValueError(f"{file} is no checkpoint of a metric training: found {found}")
    network = build_embedding_network(meta["architecture"], meta["dimensions"])
    fit_state(network, state["state_dict"], file, meta["architecture"])
    return network

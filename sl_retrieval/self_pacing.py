"""The weights of a training set during a training: updates, diagnostics, the list of suspects."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from fvcore.common.config import CfgNode
from torch import Tensor, nn

from sl_core.json_files import write_json
from sl_retrieval.data import RetrievalData
from sl_retrieval.multi_similarity import WeightedMultiSimilarityLoss
from sl_retrieval.self_paced_weights import (
    Floats,
    WeightProblem,
    age_at,
    draw_steps,
    mean_and_spread,
)


class SelfPacing:
    """The weights of all samples, and what updates them with the network fixed.

    Args:
        cfg: of ``load_metric_config``.
        data: the training set.
        loss: gives xi+ and xi- of the samples.

    Attributes:
        weights: (N,) float64 in [0, 1], 1 at first.
        costs: (N,) what the pairs of each sample cost at weights of 1, at the latest update; nan
            before the first. It orders samples of equal weight in the list of suspects.
    """

    def __init__(
        self, cfg: CfgNode, data: RetrievalData, loss: WeightedMultiSimilarityLoss
    ) -> None:
        self.cfg = cfg
        self.data = data
        self.loss = loss
        self.weights: Floats = np.ones(len(data.images))
        self.costs: Floats = np.full(len(data.images), np.nan)
        # After noise a class may have no sample left.
        used, self.labels = np.unique(data.labels, return_inverse=True)
        if len(used) < 2:
            raise ValueError(f"{data.name} has one class, expected at least two")

    @classmethod
    def of(cls, cfg: CfgNode, data: RetrievalData, method: nn.Module) -> "SelfPacing | None":
        """For the methods that weigh samples; None for the others."""
        return cls(cfg, data, method) if isinstance(method, WeightedMultiSimilarityLoss) else None

    def update(
        self, embeddings: Tensor, iteration: int, generator: np.random.Generator
    ) -> dict[str, float]:
        """Algorithm 3, from the weights as they are.

        Args:
            embeddings: (N, D) of all samples.
            iteration: of algorithm 1, from 0.
            generator: where chance comes from.

        Returns:
            maw, sdaw (equation 14), age, pair_cost (the age's unit); with known wrong labels also
            the mean weights of wrong and right ones.
        """
        options = self.cfg.SELF_PACED
        labels = torch.from_numpy(self.data.labels).to(embeddings.device)
        positive, negative = (
            losses.double().cpu().numpy()
            for losses in self.loss.data_set_losses(embeddings, labels)
        )
        age = age_at(iteration, options.AGE_START, options.AGE_MULTIPLIER, options.AGE_MAX)
        balance = options.BALANCE if self.cfg.METHOD == "bspml" else 0.0
        self.costs = WeightProblem(self.labels, positive, negative, 0.0, 0.0).pair_costs(
            np.ones_like(self.weights)
        )
        unit = float(self.costs.mean())
        problem = WeightProblem(self.labels, positive, negative, age * unit, balance)
        sampler, count = self.cfg.SAMPLER, len(self.labels)
        classes = min(sampler.CLASSES, len(np.bincount(self.labels)) - 1)
        for _ in range(options.PASSES):
            draws = draw_steps(self.labels, count, classes, sampler.PER_CLASS, generator)
            self.weights = problem.take_steps(self.weights, draws, options.LEARNING_RATE)
        maw, sdaw = mean_and_spread(self.weights, self.labels)
        row = {"maw": maw, "sdaw": sdaw, "age": age, "pair_cost": unit}
        wrong = self.data.is_wrong
        if wrong.any():
            row["weight_of_wrong"] = float(self.weights[wrong].mean())
            row["weight_of_right"] = float(self.weights[~wrong].mean())
        return row

    def write(self, file: Path) -> None:
        """Write all images as JSON, the lowest weight first, among equals the highest cost."""
        names = self.data.label_names
        rows: list[dict[str, Any]] = []
        for index in np.lexsort((-self.costs, self.weights)):
            row = {
                "image": self.data.images[index],
                "label": names[self.data.labels[index]],
                "weight": float(self.weights[index]),
                "pair_cost": float(self.costs[index]),
            }
            if self.data.clean_labels is not None:
                row["clean_label"] = names[self.data.clean_labels[index]]
                row["is_wrong"] = bool(self.data.is_wrong[index])
            rows.append(row)
        write_json(file, rows)

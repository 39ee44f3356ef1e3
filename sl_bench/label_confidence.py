"""Which labels of a training set are probably wrong: the confidence that training had in them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sl_bench import distributed
from sl_core.json_files import write_json

# Of what was recorded in earlier epochs, which knew less.
KEPT_PER_EPOCH = 0.9


class LabelConfidence:
    """Weighted means, over the epochs, of each image's confidence and plain loss.

    Args:
        count: number of images N.

    Attributes:
        sums: (3, N) float64: number of times, sum of confidences, sum of losses.
    """

    def __init__(self, count: int) -> None:
        self.sums = torch.zeros(3, count, dtype=torch.float64)
        self._epoch = torch.zeros_like(self.sums)

    def record(self, indices: Tensor, confidence: Tensor, losses: Tensor) -> None:
        """Add a batch: positions, confidences and plain losses, (B,) each."""
        values = torch.stack([torch.ones_like(losses), confidence, losses]).double().cpu()
        self._epoch.index_add_(1, indices.cpu(), values)

    def end_epoch(self) -> None:
        """Take over what all processes recorded, and weight what was before a little less."""
        self.sums = KEPT_PER_EPOCH * self.sums + distributed.sum_over_processes(self._epoch)
        self._epoch = torch.zeros_like(self.sums)

    def means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Confidence and loss (N,) of each image; nan for one that never was in a batch."""
        number, confidence, loss = self.sums.numpy()
        with np.errstate(invalid="ignore"):
            return confidence / number, loss / number

    def suspicion_order(self) -> NDArray[np.intp]:
        """Images that were in batches, the least believed first; equal ones by their loss."""
        confidence, loss = self.means()
        seen = np.flatnonzero(~np.isnan(confidence))
        return seen[np.lexsort((-loss[seen], confidence[seen]))]

    def precision(self, is_wrong: NDArray[np.bool_]) -> float:
        """Percentage of wrong labels among the K least believed, K the number of wrong ones.

        nan if there is no wrong label.
        """
        order = self.suspicion_order()
        number = int(is_wrong[order].sum())
        return 100 * float(is_wrong[order[:number]].mean()) if number else float("nan")

    def write(
        self,
        file: Path,
        ids: NDArray[np.int64],
        labels: NDArray[Any],
        clean_labels: NDArray[Any],
    ) -> None:
        """Write a list of images as JSON, the least believed label first.

        Args:
            file: to write.
            ids: (N,) number of each image in its data set.
            labels: (N,) that were trained on.
            clean_labels: (N,)
        """
        confidence, loss = self.means()
        rows = [
            {
                "image": int(ids[index]),
                "label": labels[index].item(),
                "clean_label": clean_labels[index].item(),
                "is_wrong": bool(labels[index] != clean_labels[index]),
                "confidence": float(confidence[index]),
                "loss": float(loss[index]),
            }
            for index in self.suspicion_order()
        ]
        write_json(file, rows)

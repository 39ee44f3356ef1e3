"""Which labels of a training set are probably wrong: confidence in every image's positive pairs."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sl_core.json_files import write_json
from sl_retrieval import distributed
from sl_retrieval.data import RetrievalData

# Of what was recorded in earlier epochs, which knew less.
KEPT_PER_EPOCH = 0.9


class LabelConfidence:
    """Weighted means of confidence and loss over the positive pairs of each image.

    An image with a wrong label is far from all that share it, so all its pairs are doubted; one
    with a right label only meets wrong partners now and then.

    Args:
        data: the training set.
    """

    def __init__(self, data: RetrievalData) -> None:
        self.data = data
        # Rows: number of pairs, sum of confidences, sum of plain losses.
        self.sums = torch.zeros(3, len(data.images), dtype=torch.float64)
        self._epoch = torch.zeros_like(self.sums)

    def record(self, images: Tensor, confidence: Tensor, losses: Tensor) -> None:
        """Add positive pairs.

        Args:
            images: (P, 2) indices of the pair's images.
            confidence: (P,)
            losses: (P,) plain losses.
        """
        values = torch.stack([torch.ones_like(losses), confidence, losses]).double().cpu()
        for column in images.cpu().unbind(1):
            self._epoch.index_add_(1, column, values)

    def end_epoch(self) -> None:
        """Add what all processes recorded in this epoch."""
        self.sums = KEPT_PER_EPOCH * self.sums + distributed.sum_over_processes(self._epoch)
        self._epoch = torch.zeros_like(self.sums)

    def means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Confidence and plain loss of every image, nan for one that was in no pair."""
        count, confidence, loss = self.sums.numpy()
        with np.errstate(invalid="ignore"):
            return confidence / count, loss / count

    def suspicion_order(self) -> NDArray[np.intp]:
        """Images that were in pairs, the least believed first; equal ones by their loss."""
        confidence, loss = self.means()
        seen = np.flatnonzero(~np.isnan(confidence))
        return seen[np.lexsort((-loss[seen], confidence[seen]))]

    def precision(self) -> float:
        """Part of wrong labels among as many least believed images; nan if nothing is known."""
        wrong = self.data.is_wrong
        order = self.suspicion_order()
        if not wrong[order].any():
            return float("nan")
        number = int(wrong[order].sum())
        return float(wrong[order[:number]].mean())

    def write(self, file: Path) -> None:
        """Write the images that were in positive pairs as JSON, the least believed first."""
        confidence, loss = self.means()
        names = self.data.label_names
        rows: list[dict[str, Any]] = []
        for index in self.suspicion_order():
            row = {
                "image": self.data.images[index],
                "label": names[self.data.labels[index]],
                "confidence": float(confidence[index]),
                "loss": float(loss[index]),
            }
            if self.data.clean_labels is not None:
                row["clean_label"] = names[self.data.clean_labels[index]]
                row["is_wrong"] = bool(self.data.is_wrong[index])
            rows.append(row)
        write_json(file, rows)

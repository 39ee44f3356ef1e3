"""Loads the images of tuples, each process its own part of every step."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sl_retrieval import distributed
from sl_retrieval.extraction import ImageTensors
from sl_retrieval.tuples import EpochTuples, Indices


@dataclass(frozen=True)
class TupleBatch:
    """Some tuples of an epoch, ready for the network.

    Attributes:
        indices: (T, 2 + K) indices of the images in the data set.
        images: T (2 + K) tensors (3, H, W), tuple after tuple.
        label: (T (2 + K),) -1 query, 1 positive, 0 negative.
    """

    indices: Tensor
    images: list[Tensor]
    label: Tensor


class _Tuples(Dataset[list[Tensor]]):
    def __init__(self, images: ImageTensors, tuples: EpochTuples) -> None:
        self.images = images
        self.tuples = tuples

    def __len__(self) -> int:
        return len(self.tuples)

    def __getitem__(self, number: int) -> list[Tensor]:
        return [self.images[int(index)] for index in self.tuples.indices[number]]


def load_tuples(
    images: ImageTensors, tuples: EpochTuples, per_process: int, workers: int
) -> Iterator[TupleBatch]:
    """Batches of this process, as many on every process; at the end some may be empty.

    Step s holds the tuples from s n to (s + 1) n for n = per_process x processes, so N processes
    see together what one process with N times as many sees.

    Args:
        images: the data set's.
        tuples: of the epoch.
        per_process: tuples of a batch.
        workers: processes that load images; 0 loads in this one.
    """
    together = per_process * distributed.world_size()
    first = per_process * distributed.rank()
    numbers = [
        list(range(len(tuples))[start + first : start + first + per_process])
        for start in range(0, len(tuples), together)
    ]
    # A sampler may not give an empty batch, and only the last can be empty.
    filled = [batch for batch in numbers if batch]
    loader: DataLoader[list[Tensor]] = DataLoader(
        _Tuples(images, tuples), batch_sampler=filled, num_workers=workers, collate_fn=list
    )
    for batch, loaded in zip(filled, loader, strict=True):
        indices = tuples.indices[np.array(batch)]
        flat = [image for images_of_tuple in loaded for image in images_of_tuple]
        yield TupleBatch(torch.from_numpy(indices), flat, tuple_labels(indices))
    for _ in range(len(numbers) - len(filled)):
        nothing = tuples.indices[:0]
        yield TupleBatch(torch.from_numpy(nothing), [], tuple_labels(nothing))


def tuple_labels(indices: Indices) -> Tensor:
    """cirtorch's labels of tuples (T, 2 + K): -1, 1 and K times 0, T times over."""
    count, width = indices.shape
    return torch.tensor([-1.0, 1.0] + [0.0] * (width - 2)).repeat(count)

"""A start from scratch: the network learns to classify landmarks before it learns distances.

Without pretrained weights the contrastive loss alone falls into a state in which all images look
alike: every pair then has the same distance, and the gradients cancel. Cross-entropy over labels
has no such state, and statistics of batch normalisation are learned on the way.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from sl_core import PlainLoss, SuperLoss
from sl_retrieval.data import RetrievalData
from sl_retrieval.extraction import ImageTensors
from sl_retrieval.network import ImageRetrievalNet

# Inverse temperature of the cosines; unit vectors would otherwise never be certain.
SCALE = 32.0
logger = logging.getLogger(__name__)


class LabelledCrops(Dataset[tuple[Tensor, int]]):
    """Square crops of images, half of them mirrored, and labels: a function of the seed.

    A crop has 3/4 to all of the image's height, and of its width, and is resized to (3, S, S), so
    that pictures of all shapes make one batch and batch normalisation sees all of it.

    Args:
        images: normalised tensors.
        labels: (N,) integers.
        size: S.
        seed: numbers that stand for the seed and the epoch.
    """

    def __init__(
        self, images: ImageTensors, labels: NDArray[np.int64], size: int, seed: Sequence[int]
    ) -> None:
        self.images = images
        self.labels = labels
        self.size = size
        self.seed = seed

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        generator = np.random.default_rng([*self.seed, index])
        height, width = (max(1, round(n * generator.uniform(0.75, 1))) for n in image.shape[1:])
        top = generator.integers(image.shape[1] - height + 1)
        left = generator.integers(image.shape[2] - width + 1)
        crop = image[:, top : top + height, left : left + width]
        if generator.random() < 0.5:
            crop = crop.flip(2)
        square = F.interpolate(crop[None], (self.size, self.size), mode="bilinear", antialias=True)
        return square[0], int(self.labels[index])


class TwoClassifiers(nn.Module):
    """Losses of two classifiers of descriptors, which are thrown away after the warm-up.

    Descriptors of an untrained network are nearly one vector. A linear layer after batch
    normalisation sees what is different in them, so it learns fast, but it does not care about
    distances; a classifier by cosines, 32 <x, w_c> with unit vectors w_c, learns slowly from them
    and makes distances say what is the same. Their losses are added.

    Args:
        dimensions: of a descriptor, D.
        classes: C.
    """

    def __init__(self, dimensions: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(dimensions, affine=False)
        self.linear = nn.Linear(dimensions, classes)
        self.directions = nn.Parameter(torch.randn(classes, dimensions))

    def forward(self, descriptors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (N,) of descriptors (N, D) with labels (N,), and the cosine logits (N, C)."""
        cosine = SCALE * descriptors @ F.normalize(self.directions, dim=1).T
        linear = self.linear(self.norm(descriptors))
        of_linear = F.cross_entropy(linear, labels, reduction="none")
        return of_linear + F.cross_entropy(cosine, labels, reduction="none"), cosine


def warm_up(
    network: ImageRetrievalNet,
    data: RetrievalData,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    size: int,
    workers: int = 0,
    seed: int = 0,
    lam: float | None = None,
) -> float:
    """Train a network, in place, to classify the labels of a data set.

    Minimises ``TwoClassifiers`` by Adam, its rate rising over the first tenth of the steps, then
    falling to 0 as a half cosine. Batch normalisation is in training mode. A function of its
    arguments and the seed.

    Args:
        network: on its device.
        data: at least two labels.
        epochs: at least 1.
        lr: highest learning rate.
        batch_size: at least 2.
        size: side of the crops, see ``LabelledCrops``.
        workers: processes that load images.
        seed: of the order, the crops and the classifiers.
        lam: SuperLoss's, which then weights the images, with their running mean loss as tau; it
            sets in over the first epoch. None weights them equally.

    Returns:
        Accuracy of the cosine classifier on the training crops of the last epoch, in [0, 1].
    """
    device = next(network.parameters()).device
    images = ImageTensors(data.images, size, network.meta["mean"], network.meta["std"])
    torch.manual_seed(seed)
    classifiers = TwoClassifiers(network.meta["outputdim"], len(data.label_names)).to(device)
    optimizer = torch.optim.Adam([*network.parameters(), *classifiers.parameters()], lr)
    steps_per_epoch = len(data.images) // batch_size
    if steps_per_epoch == 0:
        raise ValueError(
            f"{data.name} has {len(data.images)} images, expected at least WARMUP.BATCH_SIZE, "
            f"{batch_size}"
        )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, lr, epochs * steps_per_epoch, pct_start=0.1, cycle_momentum=False
    )
    weigh: nn.Module = (
        PlainLoss("mean")
        if lam is None
        else SuperLoss("expavg", lam, warmup_steps=steps_per_epoch, reduction="mean")
    )
    weigh.to(device)
    network.train()
    accuracy = 0.0
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(data.images))
        batches = order[: steps_per_epoch * batch_size].reshape(steps_per_epoch, batch_size)
        loader: DataLoader[tuple[Tensor, int]] = DataLoader(
            LabelledCrops(images, data.labels, size, (seed, epoch)),
            batch_sampler=batches.tolist(),
            num_workers=workers,
        )
        right = 0
        shown = tqdm(loader, desc=f"warm-up {epoch + 1}/{epochs}", unit="step", leave=False)
        for crops, targets in shown:
            labels = targets.to(device)
            losses, logits = classifiers(network(crops.to(device)).T, labels)
            optimizer.zero_grad()
            weigh(losses).backward()
            optimizer.step()
            schedule.step()
            right += int((logits.argmax(1) == labels).sum())
        accuracy = right / (steps_per_epoch * batch_size)
        logger.info("warm-up %d/%d on %s: accuracy %.3f", epoch + 1, epochs, data.name, accuracy)
    # The gradient of the last step must not enter the first one of what follows.
    network.zero_grad()
    return accuracy

"""A start from scratch: the network learns to classify landmarks before it learns distances.

Without pretrained weights the contrastive loss alone falls into a state in which all images look
alike: every pair then has the same distance, and the gradients cancel. Cross-entropy over labels
has no such state, and statistics of batch normalisation are learned on the way.
"""

import logging

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from sl_retrieval.data import RetrievalData
from sl_retrieval.extraction import ImageTensors, describe_images
from sl_retrieval.network import ImageRetrievalNet

# Inverse temperature of the cosines; unit vectors would otherwise never be certain.
SCALE = 16.0
logger = logging.getLogger(__name__)


class _Labelled(torch.utils.data.Dataset[tuple[Tensor, int]]):
    def __init__(self, images: ImageTensors, data: RetrievalData) -> None:
        self.images = images
        self.data = data

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.data.labels[index])


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
) -> float:
    """Train a network, in place, to classify the labels of a data set by cosine similarity.

    Softmax cross-entropy of 16 <descriptor, w_c> with unit vectors w_c that are thrown away
    afterwards; Adam, its rate falling to 0 as a half cosine. Batch normalisation is in training
    mode. A function of its arguments and the seed.

    Args:
        network: on its device.
        data: at least two labels.
        epochs: at least 1.
        lr: first learning rate.
        batch_size: at least 2; images of a batch must have one size for good statistics.
        size: longest side of an image.
        workers: processes that load images.
        seed: of the order and of the w_c.

    Returns:
        Accuracy on the training images in the last epoch, in [0, 1].
    """
    device = next(network.parameters()).device
    images = ImageTensors(data.images, size, network.meta["mean"], network.meta["std"])
    torch.manual_seed(seed)
    proxies = nn.Parameter(torch.randn(len(data.label_names), network.meta["outputdim"]))
    proxies.data = proxies.data.to(device)
    optimizer = torch.optim.Adam([*network.parameters(), proxies], lr)
    steps_per_epoch = len(data.images) // batch_size
    if steps_per_epoch == 0:
        raise ValueError(
            f"{data.name} has {len(data.images)} images, expected at least WARMUP.BATCH_SIZE, "
            f"{batch_size}"
        )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps_per_epoch)
    network.train()
    accuracy = 0.0
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(data.images))
        batches = order[: steps_per_epoch * batch_size].reshape(steps_per_epoch, batch_size)
        loader: DataLoader[tuple[Tensor, int]] = DataLoader(
            _Labelled(images, data),
            batch_sampler=batches.tolist(),
            num_workers=workers,
            collate_fn=list,
        )
        right = 0
        shown = tqdm(loader, desc=f"warm-up {epoch + 1}/{epochs}", unit="step", leave=False)
        for batch in shown:
            labels = torch.tensor([label for _, label in batch], device=device)
            descriptors = describe_images(network, [image.to(device) for image, _ in batch])
            logits = SCALE * descriptors.T @ F.normalize(proxies, dim=1).T
            optimizer.zero_grad()
            F.cross_entropy(logits, labels).backward()
            optimizer.step()
            schedule.step()
            right += int((logits.argmax(1) == labels).sum())
        accuracy = right / (steps_per_epoch * batch_size)
        logger.info("warm-up %d/%d on %s: accuracy %.3f", epoch + 1, epochs, data.name, accuracy)
    # The gradient of the last step must not enter the first one of what follows.
    network.zero_grad()
    return accuracy

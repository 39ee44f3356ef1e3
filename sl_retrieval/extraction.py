"""Descriptors of many images: loaded by workers, computed in batches, spread over processes."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from sl_retrieval import distributed
from sl_retrieval.images import load_image
from sl_retrieval.network import ImageRetrievalNet
from sl_retrieval.pooling import GeM

Box = tuple[float, float, float, float]


class ImageTensors(Dataset[Tensor]):
    """Images of a list, as normalised tensors (3, H, W).

    Args:
        images: paths.
        size: longest side at most; None leaves images as they are.
        mean: of each channel, for values in [0, 1].
        std: of each channel.
        boxes: what to cut out of each image, in pixels; None the whole.
    """

    def __init__(
        self,
        images: Sequence[str],
        size: int | None,
        mean: Sequence[float],
        std: Sequence[float],
        boxes: Sequence[Box | None] | None = None,
    ) -> None:
        self.images = images
        self.size = size
        self.mean = torch.tensor(mean)[:, None, None]
        self.std = torch.tensor(std)[:, None, None]
        self.boxes = boxes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        box = None if self.boxes is None else self.boxes[index]
        pixels = np.asarray(load_image(self.images[index], self.size, box))
        channels_first = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
        return (channels_first.float() / 255 - self.mean) / self.std


def describe_images(network: Callable[[Tensor], Tensor], images: Sequence[Tensor]) -> Tensor:
    """Descriptors (D, N) of images of any sizes; those of one size go through together."""
    by_size: dict[torch.Size, list[int]] = {}
    for position, image in enumerate(images):
        by_size.setdefault(image.shape, []).append(position)
    columns: list[Tensor | None] = [None] * len(images)
    for positions in by_size.values():
        described = network(torch.stack([images[p] for p in positions]))
        for position, column in zip(positions, described.unbind(1), strict=True):
            columns[position] = column
    return torch.stack([column for column in columns if column is not None], dim=1)


def multi_scale_power(network: ImageRetrievalNet, scales: Sequence[float]) -> float:
    """The exponent of the mean over scales: GeM's p for a plain GeM network, else 1."""
    is_plain_gem = isinstance(network.pool, GeM) and network.whiten is None
    if len(scales) > 1 and is_plain_gem:
        return float(network.pool.get_parameter("p").detach())
    return 1.0


def describe_at_scales(
    network: ImageRetrievalNet, images: Tensor, scales: Sequence[float], power: float
) -> Tensor:
    """Unit descriptors (D, N) of a batch: the power mean of those at several scales.

    (mean over scales of v^power)^(1 / power), normalised, as cirtorch does; one scale of 1 is the
    network's own descriptor.
    """
    if tuple(scales) == (1,):
        own: Tensor = network(images)
        return own
    powers: list[Tensor] = [network(_resized(images, scale)).pow(power) for scale in scales]
    mean: Tensor = torch.stack(powers).mean(0).pow(1 / power)
    unit: Tensor = mean / mean.norm(dim=0)
    return unit


def _resized(images: Tensor, scale: float) -> Tensor:
    if scale == 1:
        return images
    return F.interpolate(images, scale_factor=scale, mode="bilinear", align_corners=False)


@torch.no_grad()
def extract_descriptors(
    network: ImageRetrievalNet,
    images: Sequence[str],
    *,
    size: int | None,
    boxes: Sequence[Box | None] | None = None,
    scales: Sequence[float] = (1,),
    batch_size: int = 16,
    workers: int = 0,
    title: str | None = None,
) -> Tensor:
    """Descriptors (N, D) of images, float32 on the CPU; the network is left in evaluation mode.

    Batches go to the processes in turn, so that every batch is the same however many there are.

    Args:
        network: with its device and its mean and std in ``meta``.
        images: N paths.
        size: longest side at most.
        boxes: what to cut out of each image.
        scales: see ``describe_at_scales``.
        batch_size: images loaded together; those of one size are computed together.
        workers: processes that load images; 0 loads in this one.
        title: shown with the progress; None shows none.
    """
    network.eval()
    device = next(network.parameters()).device
    power = multi_scale_power(network, scales)
    data = ImageTensors(images, size, network.meta["mean"], network.meta["std"], boxes)
    batches = [range(s, min(s + batch_size, len(data))) for s in range(0, len(data), batch_size)]
    own = range(distributed.rank(), len(batches), distributed.world_size())
    loader: DataLoader[Tensor] = DataLoader(
        data, batch_sampler=[list(batches[b]) for b in own], num_workers=workers, collate_fn=list
    )

    def describe(batch: Tensor) -> Tensor:
        return describe_at_scales(network, batch.to(device), scales, power)

    shown = tqdm(loader, desc=title, unit="batch", disable=title is None, leave=False)
    parts = {
        number: describe_images(describe, batch).T.float().cpu()
        for number, batch in zip(own, shown, strict=True)
    }
    gathered = distributed.gather_parts(parts, len(batches))
    return torch.cat(gathered) if gathered else torch.zeros(0, int(network.meta["outputdim"]))

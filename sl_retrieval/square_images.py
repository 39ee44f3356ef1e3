"""Images of one square size, plain or cut out at random, and their embeddings."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2
from tqdm import tqdm

from sl_retrieval.embedding_network import EmbeddingNet
from sl_retrieval.images import open_image

AUGMENTATIONS = ("none", "crop_flip")
SMALLEST_CROP = 0.16  # part of the image's area

Draw = tuple[int, int]  # position of an image, and the seed of what chance does to it


class SquareImages(Dataset[Tensor]):
    """Images of a list as normalised tensors (3, S, S).

    Plain, the shorter side is made S and the middle is cut out.

    Args:
        images: N paths.
        size: S.
        mean: of each channel, for values in [0, 1].
        std: of each channel.
        augment: ``none``; or ``crop_flip``, a random part of the image (at least 0.16 of its area,
            aspect ratio 3/4 to 4/3), mirrored or not. A function of the seed in the index alone.
        in_memory: decode all images now, once; only without augmentation.
    """

    def __init__(
        self,
        images: Sequence[str],
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        augment: str = "none",
        in_memory: bool = False,
    ) -> None:
        self.images = images
        self.mean = torch.tensor(mean)[:, None, None]
        self.std = torch.tensor(std)[:, None, None]
        self.is_random = augment == "crop_flip"
        if self.is_random:
            crop = v2.RandomResizedCrop(size, scale=(SMALLEST_CROP, 1.0))
            self.geometry = v2.Compose([crop, v2.RandomHorizontalFlip()])
        else:
            self.geometry = v2.Compose([v2.Resize(size), v2.CenterCrop(size)])
        self.decoded: list[Tensor] | None = None
        if in_memory:
            shown = tqdm(range(len(images)), desc="reading images", unit="image", leave=False)
            self.decoded = [self._pixels(index) for index in shown]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, draw: Draw) -> Tensor:
        index, seed = draw
        if self.decoded is not None:
            pixels = self.decoded[index]
        elif self.is_random:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                pixels = self._pixels(index)
        else:
            pixels = self._pixels(index)
        return (pixels.float() / 255 - self.mean) / self.std

    def _pixels(self, index: int) -> Tensor:
        """(3, S, S), uint8."""
        image = self.geometry(open_image(self.images[index]))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def load_batches(
    images: SquareImages, batches: Iterable[list[Draw]], workers: int
) -> DataLoader[Tensor]:
    """Tensors (B, 3, S, S), loaded by workers, or in this process if they are 0."""
    return DataLoader(images, batch_sampler=list(batches), num_workers=workers)


@torch.no_grad()
def embed_images(
    network: EmbeddingNet, images: SquareImages, batch_size: int, workers: int, title: str
) -> Tensor:
    """Embeddings (N, E) of plain images on the CPU; the network is left in evaluation mode."""
    network.eval()
    device = next(network.parameters()).device
    everything = [(index, 0) for index in range(len(images))]
    batches = [everything[s : s + batch_size] for s in range(0, len(images), batch_size)]
    loader = load_batches(images, batches, workers)
    shown = tqdm(loader, desc=title, unit="batch", leave=False)
    return torch.cat([network(batch.to(device)).cpu() for batch in shown])

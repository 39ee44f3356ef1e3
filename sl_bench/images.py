"""From bytes or files of pictures to the batches that enter a network."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from fvcore.common.config import CfgNode
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sl_bench.data import Split

CROP_PADDING = 4
# Of ImageNet, which the weights of torchvision expect; in bytes.
PICTURE_MEAN = tuple(255 * value for value in (0.485, 0.456, 0.406))
PICTURE_STD = tuple(255 * value for value in (0.229, 0.224, 0.225))


class ImageBatches:
    """Batches of a split's images: normalised, cropped and, in training, mirrored.

    Small sets lie on the device as bytes and are indexed; pictures are read by worker processes.
    What is random is given by the caller, one row of three numbers for each image of the split, so
    that it does not depend on the batch or the process that an image falls to.

    Args:
        split: the images.
        cfg: DATASET, NUM_WORKERS.
        device: of the batches.
        normalisation: mean and deviation of each channel, in bytes; None takes those of this
            split, or for pictures those of ImageNet.

    Attributes:
        shape: (channels, height, width) of the images in a batch.
        normalisation: what is used.
    """

    def __init__(
        self,
        split: Split,
        cfg: CfgNode,
        device: torch.device,
        normalisation: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.device = device
        self.workers = cfg.NUM_WORKERS
        data = cfg.DATASET
        self.padding = CROP_PADDING if data.AUGMENT == "crop_flip" else 0
        stored = data.RESIZE if data.AUGMENT == "resize_crop_flip" else data.IMAGE_SIZE
        self.files: list[Path] | None = None
        if isinstance(split.images, list):
            self.files, self.stored = split.images, stored
            self.shape = (3, data.IMAGE_SIZE, data.IMAGE_SIZE)
            self.normalisation = normalisation or (
                torch.tensor(PICTURE_MEAN),
                torch.tensor(PICTURE_STD),
            )
        else:
            self.images = _resized(torch.from_numpy(np.ascontiguousarray(split.images)), stored)
            channels, height, width = self.images.shape[1:]
            size = data.IMAGE_SIZE
            self.shape = (channels, size or height, size or width)
            self.normalisation = normalisation or _channel_statistics(self.images)
            self.images = self.images.to(device)
        self._mean, self._std = (part.to(device).view(1, -1, 1, 1) for part in self.normalisation)

    def load(self, batches: Sequence[Tensor], draws: Tensor | None = None) -> Iterator[Tensor]:
        """One tensor (B, channels, height, width) on the device for each batch.

        Args:
            batches: positions of the images in the split, (B,) integers each.
            draws: (N, 3) in [0, 1) for the N images of the split: place of the crop, from top and
                left, and mirroring. None takes the middle and does not mirror.
        """
        for batch, images in zip(batches, self._bytes(batches), strict=True):
            normalised = (images.float() - self._mean) / self._std
            of_batch = None if draws is None else draws[batch].to(self.device)
            yield crop_and_mirror(normalised, self.shape[1:], self.padding, of_batch)

    def _bytes(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        if self.files is None:
            for batch in batches:
                yield self.images[batch.to(self.device)]
        else:
            loader = DataLoader(
                PictureTensors(self.files, self.stored),
                batch_sampler=[batch.tolist() for batch in batches],
                num_workers=self.workers,
                pin_memory=self.device.type == "cuda",
            )
            try:
                for images in loader:
                    yield images.to(self.device, non_blocking=True)
            except ValueError as error:
                # The message of a worker has its whole traceback in front.
                reason = str(error).strip().splitlines()[-1].removeprefix("ValueError: ")
                raise ValueError(reason) from None


class PictureTensors(Dataset[Tensor]):
    """Pictures as bytes (3, size, size), warped to the square."""

    def __init__(self, files: Sequence[Path], size: int) -> None:
        # One array of text, since a list of a million objects is copied into every worker.
        self.files = np.array([str(file) for file in files], dtype=np.bytes_)
        self.size = size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, position: int) -> Tensor:
        file = self.files[position].decode()
        try:
            with Image.open(file) as picture:
                rgb = picture.convert("RGB").resize(
                    (self.size, self.size), Image.Resampling.BILINEAR
                )
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"{file} is not a readable picture: {error}") from error
        return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def crop_and_mirror(
    images: Tensor, size: tuple[int, int], padding: int, draws: Tensor | None
) -> Tensor:
    """Cut a window out of each image, which may be mirrored from left to right.

    Args:
        images: (B, C, H, W), of mean 0.
        size: height and width of the window.
        padding: zeros added on every side first.
        draws: (B, 3) in [0, 1): place from the top and from the left, uniform over all places;
            mirrored if the third is below 1/2. None takes the middle and does not mirror.

    Returns:
        (B, C, *size)
    """
    count, _, height, width = images.shape
    rows, columns = (torch.arange(n, device=images.device).expand(count, n) for n in size)
    room = (height + 2 * padding - size[0], width + 2 * padding - size[1])
    if draws is None:
        if room == (2 * padding, 2 * padding):
            return images
        rows, columns = rows + room[0] // 2, columns + room[1] // 2
    else:
        mirrored = draws[:, 2:] < 0.5
        columns = torch.where(mirrored, size[1] - 1 - columns, columns)
        rows = rows + (draws[:, :1] * (room[0] + 1)).long()
        columns = columns + (draws[:, 1:2] * (room[1] + 1)).long()
    padded = F.pad(images, (padding,) * 4)
    which = torch.arange(count, device=images.device)[:, None, None]
    # Indices on both sides of the channels put these last.
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _resized(images: Tensor, size: int) -> Tensor:
    """Bytes (N, C, size, size); as they are if size is 0."""
    if size == 0 or tuple(images.shape[-2:]) == (size, size):
        return images
    parts = [
        F.interpolate(part.float(), (size, size), mode="bilinear", antialias=True)
        for part in images.split(1024)
    ]
    return torch.cat([part.round().clamp(0, 255).byte() for part in parts])


def _channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel over bytes (N, C, H, W), exact in integers."""
    count = images[:, 0].numel()
    total = images.sum((0, 2, 3), dtype=torch.long).double()
    squares = sum(part.long().square().sum((0, 2, 3)) for part in images.split(1024))
    assert isinstance(squares, Tensor)
    mean = total / count
    deviation = (squares.double() / count - mean.square()).clamp(min=0).sqrt()
    # A set of one colour has nothing to be scaled.
    return mean.float(), deviation.clamp(min=1e-3).float()

"""Batches of images: the right ones, normalised, cropped and mirrored as told."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sl_bench.config import load_config
from sl_bench.data import Split
from sl_bench.images import ImageBatches, crop_and_mirror

CPU = torch.device("cpu")


def split_of(images: object, count: int) -> Split:
    return Split(images, np.zeros(count, np.int64), np.arange(count))  # type: ignore[arg-type]


def test_crop_and_mirror_equal_slices_and_flips() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(40, 2, 6, 7, generator=generator)
    draws = torch.rand(40, 3, generator=generator)
    result = crop_and_mirror(images, (6, 7), 4, draws)
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    for image, draw, expected in zip(padded, draws.tolist(), result, strict=True):
        top, left = int(draw[0] * 9), int(draw[1] * 9)
        window = image[:, top : top + 6, left : left + 7]
        assert torch.equal(expected, window.flip(-1) if draw[2] < 0.5 else window)


def test_without_draws_the_middle_is_cut_out() -> None:
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(crop_and_mirror(images, (4, 4), 0, None), images[:, :, 2:6, 2:6])
    assert torch.equal(crop_and_mirror(images, (8, 8), 4, None), images)


def test_batches_have_mean_zero_and_follow_the_indices() -> None:
    bytes_ = np.random.default_rng(0).integers(0, 256, (50, 3, 8, 8)).astype(np.uint8)
    source = ImageBatches(split_of(bytes_, 50), load_config(None, []), CPU)
    batches = list(torch.randperm(50).split(20))
    loaded = torch.cat(list(source.load(batches)))
    torch.testing.assert_close(loaded.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(loaded.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)
    values = torch.from_numpy(bytes_)[torch.cat(batches)].float()
    mean, std = (part.view(1, 3, 1, 1) for part in source.normalisation)
    torch.testing.assert_close(loaded * std + mean, values, atol=1e-3, rtol=0)


def test_an_image_is_augmented_the_same_in_every_batch() -> None:
    bytes_ = np.random.default_rng(0).integers(0, 256, (10, 1, 8, 8)).astype(np.uint8)
    cfg = load_config(None, ["DATASET.AUGMENT", "crop_flip"])
    source = ImageBatches(split_of(bytes_, 10), cfg, CPU)
    draws = torch.rand(10, 3)
    together = torch.cat(list(source.load([torch.arange(10)], draws)))
    alone = torch.cat(list(source.load(list(torch.arange(10).split(1)), draws)))
    assert torch.equal(together, alone)
    assert not torch.equal(together, torch.cat(list(source.load([torch.arange(10)]))))


def test_images_in_memory_can_be_resized() -> None:
    bytes_ = np.full((3, 1, 28, 28), 100, np.uint8)
    source = ImageBatches(split_of(bytes_, 3), load_config(None, ["DATASET.IMAGE_SIZE", "32"]), CPU)
    assert source.shape == (1, 32, 32)
    (batch,) = source.load([torch.arange(3)])
    assert batch.shape == (3, 1, 32, 32) and source.images.unique().tolist() == [100]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_pictures_are_read_warped_and_cropped(tmp_path: Path, workers: str) -> None:
    files = []
    for number in range(4):
        files.append(tmp_path / f"{number}.png")
        Image.new("RGB", (30, 20 + number), (60 * number, 0, 0)).save(files[-1])
    options = ["TASK", "regression", "LOSS.INPUT", "l2", "DATASET.NAME", "utkface"]
    options += ["DATASET.ROOT", str(tmp_path), "DATASET.AUGMENT", "resize_crop_flip"]
    options += ["DATASET.RESIZE", "16", "DATASET.IMAGE_SIZE", "12", "NUM_WORKERS", workers]
    source = ImageBatches(split_of(files, 4), load_config(None, options), CPU)
    batches = [torch.tensor([3, 0]), torch.tensor([2, 1])]
    loaded = list(source.load(batches, torch.rand(4, 3)))
    assert [tuple(batch.shape) for batch in loaded] == [(2, 3, 12, 12)] * 2
    mean, std = (part[0] for part in source.normalisation)
    red = torch.cat([batch[:, 0].mean((1, 2)) for batch in loaded]) * std + mean
    assert red.round().tolist() == [180, 0, 120, 60]
    files[2].write_bytes(files[2].read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"^\S*2\.png is not a readable picture"):
        list(source.load(batches))

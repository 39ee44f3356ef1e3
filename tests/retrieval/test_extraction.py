"""Descriptors do not depend on how images are batched; several scales as cirtorch defines them."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from sl_retrieval.extraction import (
    ImageTensors,
    describe_at_scales,
    describe_images,
    extract_descriptors,
    multi_scale_power,
)
from sl_retrieval.network import ImageRetrievalNet, build_network


@pytest.fixture(scope="module")
def network() -> ImageRetrievalNet:
    torch.manual_seed(0)
    return build_network("squeezenet1_1", "gem").eval()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of three sizes, mixed."""
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    paths = []
    for number in range(9):
        width, height = [(64, 48), (48, 64), (40, 40)][number % 3]
        pixels = generator.integers(0, 255, (height, width, 3)).astype(np.uint8)
        paths.append(str(folder / f"{number}.png"))
        Image.fromarray(pixels).save(paths[-1])
    return paths


def test_pixels_are_normalised_by_mean_and_deviation(images: list[str]) -> None:
    tensor = ImageTensors(images, None, (0.5, 0.4, 0.3), (0.1, 0.2, 0.3))[1]
    pixels = np.asarray(Image.open(images[1])) / 255
    expected = (pixels - [0.5, 0.4, 0.3]) / [0.1, 0.2, 0.3]
    np.testing.assert_allclose(tensor.numpy(), expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (4, 0), (9, 2)])
def test_each_image_has_its_own_descriptor_in_its_own_place(
    network: ImageRetrievalNet, images: list[str], batch_size: int, workers: int
) -> None:
    found = extract_descriptors(network, images, size=48, batch_size=batch_size, workers=workers)
    data = ImageTensors(images, 48, network.meta["mean"], network.meta["std"])
    with torch.no_grad():
        expected = torch.stack([network(data[n][None])[:, 0] for n in range(len(images))])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_box_is_cut_out(network: ImageRetrievalNet, images: list[str]) -> None:
    box = (8.0, 8.0, 40.0, 40.0)
    found = extract_descriptors(network, images[:1], size=None, boxes=[box])
    whole = ImageTensors(images[:1], None, network.meta["mean"], network.meta["std"])[0]
    with torch.no_grad():
        expected = network(whole[None, :, 8:40, 8:40]).T
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_no_images_have_no_descriptors(network: ImageRetrievalNet) -> None:
    assert extract_descriptors(network, [], size=48).shape == (0, 512)
    with pytest.raises(RuntimeError):
        describe_images(network, [])


def test_several_scales_are_joined_by_the_power_mean(network: ImageRetrievalNet) -> None:
    batch = torch.rand(2, 3, 64, 48)
    scales, power = (1, 0.7071, 0.5), 3.0
    with torch.no_grad():
        found = describe_at_scales(network, batch, scales, power)
        total = torch.zeros(512, 2)
        for scale in scales:
            size = (int(64 * scale), int(48 * scale))
            resized = F.interpolate(batch, size=size, mode="bilinear", align_corners=False)
            total += network(resized) ** power
    expected = (total / 3) ** (1 / power)
    expected = expected / expected.norm(dim=0)
    # interpolate's scale_factor and size differ a little in where they sample.
    assert F.cosine_similarity(found, expected, dim=0).min() > 0.999
    torch.testing.assert_close(found.norm(dim=0), torch.ones(2))


def test_the_power_is_gems_own_only_for_plain_gem_at_several_scales() -> None:
    gem = build_network("squeezenet1_1", "gem")
    with torch.no_grad():
        gem.pool.get_parameter("p").fill_(2.5)
    assert multi_scale_power(gem, (1, 0.5)) == 2.5
    assert multi_scale_power(gem, (1,)) == 1
    assert multi_scale_power(build_network("squeezenet1_1", "mac"), (1, 0.5)) == 1
    assert multi_scale_power(build_network("squeezenet1_1", "gem", whitening=True), (1, 0.5)) == 1
    assert multi_scale_power(build_network("squeezenet1_1", "gem", regional=True), (1, 0.5)) == 1


def test_a_damaged_image_is_named(network: ImageRetrievalNet, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken\.jpg"):
        extract_descriptors(network, [str(tmp_path / "broken.jpg")], size=48)

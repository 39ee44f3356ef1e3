"""The warm-up learns, and is a function of its seed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sl_retrieval.builders import from_folders
from sl_retrieval.extraction import ImageTensors, extract_descriptors
from sl_retrieval.network import build_network
from sl_retrieval.revisited import evaluate_classic, relevance_from_labels
from sl_retrieval.warmup import LabelledCrops, warm_up


def test_it_learns_to_tell_landmarks_apart_the_same_at_each_time(picture_folder: Path) -> None:
    data = from_folders("pictures", picture_folder)
    weights, maps = [], []
    for _ in range(2):
        torch.manual_seed(0)
        network = build_network("resnet18")
        accuracy = warm_up(network, data, epochs=6, lr=1e-3, batch_size=12, size=48)
        assert accuracy > 0.9
        assert all(p.grad is None for p in network.parameters()), "it would enter the next step"
        weights.append(network.state_dict())
        described = extract_descriptors(network, data.images, size=48)
        relevance = relevance_from_labels(data.labels, data.labels, range(len(data.labels)))
        maps.append(evaluate_classic(described, described, relevance)["map"])
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    assert maps[0] > 0.6


def test_the_limit_of_superloss_is_the_plain_warm_up(picture_folder: Path) -> None:
    data = from_folders("pictures", picture_folder)
    described = {}
    for lam in (None, 1e9, 0.5):
        torch.manual_seed(0)
        network = build_network("resnet18")
        warm_up(network, data, epochs=2, lr=1e-4, batch_size=12, size=32, lam=lam)
        described[lam] = extract_descriptors(network, data.images, size=32)
    torch.testing.assert_close(described[1e9], described[None], rtol=0, atol=2e-3)
    assert (described[0.5] - described[None]).abs().max() > 1e-2


def test_crops_of_all_shapes_are_squares_and_a_function_of_the_seed(tmp_path: Path) -> None:
    for number, shape in enumerate(((40, 60), (60, 40), (1, 1))):
        pixels = np.random.default_rng(number).integers(0, 255, (*shape, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    files = tuple(str(tmp_path / f"{number}.png") for number in range(3))
    images = ImageTensors(files, 32, (0, 0, 0), (1, 1, 1))
    crops, again, other = (
        [LabelledCrops(images, np.arange(3), 32, (0, epoch))[i][0] for i in range(3)]
        for epoch in (0, 0, 1)
    )
    assert [crop.shape for crop in crops] == [(3, 32, 32)] * 3
    assert all(torch.equal(a, b) for a, b in zip(crops, again, strict=True))
    assert not torch.equal(crops[0], other[0])


def test_a_set_smaller_than_a_batch_is_refused(picture_folder: Path) -> None:
    data = from_folders("pictures", picture_folder)
    with pytest.raises(ValueError, match=r"pictures has 48 images, .* WARMUP.BATCH_SIZE, 64"):
        warm_up(build_network("resnet18"), data, epochs=1, lr=1e-3, batch_size=64, size=48)

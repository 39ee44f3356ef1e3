"""The networks have the published sizes and work for every kind of image."""

import pytest
import torch

from sl_bench.networks import CifarBlock, build_network, has_batch_norm


@pytest.mark.parametrize(
    "name, classes, millions",
    [
        ("resnet20", 10, 0.27),
        ("resnet44", 10, 0.66),
        ("resnet56", 10, 0.85),
        ("wrn28_10", 10, 36.5),
        ("resnet50", 1000, 25.6),
    ],
)
def test_parameters_are_as_many_as_published(name: str, classes: int, millions: float) -> None:
    with torch.device("meta"):
        network = build_network(name, (3, 32, 32), classes)
    count = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    digits = 2 if millions < 1 else 1
    assert round(count, digits) == millions
    assert has_batch_norm(network)


@pytest.mark.parametrize("name", ["small_cnn", "resnet20", "wrn28_10", "resnet18"])
def test_images_become_one_number_per_class(name: str) -> None:
    with torch.device("meta"):
        network = build_network(name, (3, 40, 36), 7, dropout=0.2)
        assert network(torch.zeros(2, 3, 40, 36)).shape == (2, 7)


def test_the_depth_is_that_of_the_name() -> None:
    with torch.device("meta"):
        network = build_network("resnet44", (3, 32, 32), 10)
    weights = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    assert len(weights) == 44


def test_a_shortcut_keeps_every_second_pixel_and_pads_channels_with_zeros() -> None:
    block = CifarBlock(4, 8, 2).eval()
    for parameter in block.parameters():
        torch.nn.init.zeros_(parameter)
    x = torch.rand(2, 4, 6, 6)
    out = block(x)
    assert torch.equal(out[:, 2:6], x[:, :, ::2, ::2])
    assert not out[:, :2].any() and not out[:, 6:].any()


@pytest.mark.parametrize("name", ["small_cnn", "resnet20", "resnet18"])
def test_dropout_acts_in_training_only(name: str) -> None:
    torch.manual_seed(0)
    network = build_network(name, (3, 32, 32), 5, dropout=0.5)
    last = network.get_submodule("fc")
    inputs = []
    last.register_forward_hook(lambda _, x, __: inputs.append(x[0]))
    images = torch.rand(4, 3, 32, 32)
    network.eval()
    network(images)
    share_of_zeros = (inputs[-1] == 0).float().mean()
    network.train()
    network(images)
    assert (inputs[-1] == 0).float().mean() > share_of_zeros + 0.2


def test_small_cnn_is_without_batch_norm_and_refuses_tiny_images() -> None:
    assert not has_batch_norm(build_network("small_cnn", (1, 8, 8), 10))
    with pytest.raises(ValueError, match="images are 3 x 8, expected at least 4 x 4"):
        build_network("small_cnn", (1, 3, 8), 10)
    with pytest.raises(ValueError, match="images have 1 channels, expected 3"):
        build_network("resnet50", (1, 32, 32), 10)

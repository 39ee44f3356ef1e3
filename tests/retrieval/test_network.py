"""The network against cirtorch's order, names and counts; weights from all kinds of files."""

from pathlib import Path

import pytest
import torch
import torchvision
from torch import Tensor, nn

from sl_retrieval.checkpoint import save_checkpoint
from sl_retrieval.network import (
    ARCHITECTURES,
    OUTPUT_DIM,
    POOLINGS,
    ImageRetrievalNet,
    build_network,
    freeze_batch_norm,
)
from sl_retrieval.pooling import GeM


def images(batch: int = 2, height: int = 64, width: int = 80) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0))


def same_state(first: nn.Module, second: nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return list(one) == list(two) and all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_gives_descriptors_of_its_dimension(architecture: str) -> None:
    with torch.device("meta"):
        network = build_network(architecture)
        assert network(torch.empty(2, 3, 64, 80)).shape == (OUTPUT_DIM[architecture], 2)
        assert network.features(torch.empty(1, 3, 64, 80)).shape[1] == OUTPUT_DIM[architecture]
    assert network.meta["outputdim"] == OUTPUT_DIM[architecture]


@pytest.mark.parametrize("architecture", ["alexnet", "resnet18", "squeezenet1_1", "densenet121"])
def test_features_are_those_of_the_classifier(architecture: str, tmp_path: Path) -> None:
    """The classifier's own forward, up to where cirtorch cuts it; never negative."""
    classifier = torchvision.models.get_model(architecture, weights=None).eval()
    torch.save(classifier.state_dict(), tmp_path / "classifier.pth")
    network = build_network(architecture, weights=tmp_path / "classifier.pth").eval()
    seen: dict[str, Tensor] = {}

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen["maps"] = inputs[0].clone()

    before = {
        "resnet18": "avgpool",
        "alexnet": "features.12",
        "squeezenet1_1": "classifier",
        "densenet121": "classifier",
    }
    classifier.get_submodule(before[architecture]).register_forward_pre_hook(keep)
    with torch.no_grad():
        classifier(images())
        maps = network.features(images())
    if architecture == "densenet121":
        maps = maps.mean((2, 3))  # its classifier pools by itself
    assert maps.min() >= 0
    torch.testing.assert_close(maps, seen["maps"])


def test_number_of_state_entries_is_that_of_cirtorch() -> None:
    with torch.device("meta"):
        plain = build_network("resnet50")
        whitened = build_network("resnet50", whitening=True)
        everything = build_network("resnet50", whitening=True, local_whitening=True, regional=True)
    assert [len(net.state_dict()) for net in (plain, whitened, everything)] == [319, 321, 325]
    names = set(everything.state_dict())
    assert {"features.0.weight", "features.7.2.bn3.bias", "pool.rpool.p"} <= names
    assert {"pool.whiten.weight", "lwhiten.bias", "whiten.weight"} <= names
    assert plain.state_dict()["pool.p"].shape == (1,)


def test_meta_has_the_keys_that_cirtorch_reads() -> None:
    network = build_network("squeezenet1_1", "mac", whitening=True, std=[0.5, 0.5, 0.25])
    assert network.meta == {
        "architecture": "squeezenet1_1",
        "local_whitening": False,
        "pooling": "mac",
        "regional": False,
        "whitening": True,
        "mean": [0.485, 0.456, 0.406],
        "std": [0.5, 0.5, 0.25],
        "outputdim": 512,
    }
    assert "architecture=squeezenet1_1, local_whitening=False, pooling=mac" in repr(network)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("whole", [False, True])
def test_descriptors_are_unit_columns(pooling: str, whole: bool) -> None:
    network = build_network(
        "squeezenet1_1", pooling, local_whitening=whole, regional=whole, whitening=whole
    ).eval()
    with torch.no_grad():
        columns = network(images(3))
        alone = torch.cat([network(image[None]) for image in images(3)], dim=1)
    assert columns.shape == (512, 3)
    torch.testing.assert_close(columns.norm(dim=0), torch.ones(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(columns, alone)


def test_parts_are_applied_in_the_order_of_cirtorch() -> None:
    lwhiten, whiten = nn.Linear(4, 4), nn.Linear(4, 4)
    conv = nn.Conv2d(3, 4, 3)
    network = ImageRetrievalNet([conv, nn.ReLU()], lwhiten, GeM(), whiten, {})
    maps = conv(images()).relu()
    expected = []
    for image in maps:
        positions = [lwhiten(image[:, y, x]) for y in range(62) for x in range(78)]
        pooled = torch.stack(positions).clamp(min=1e-6).pow(3).mean(0).pow(1 / 3)
        vector = whiten(pooled / (pooled.norm() + 1e-6))
        expected.append(vector / (vector.norm() + 1e-6))
    torch.testing.assert_close(network(images()), torch.stack(expected, dim=1))


def test_half_precision_gives_float32_descriptors() -> None:
    network = build_network("squeezenet1_1", whitening=True).eval()
    with torch.no_grad():
        wide = network(images())
        with torch.autocast("cpu", torch.bfloat16):
            mixed = network(images())
        narrow = network.bfloat16()(images().bfloat16())
    for columns in (mixed, narrow):
        assert columns.dtype == torch.float32
        assert ((columns * wide).sum(0) > 0.99).all()


def test_frozen_batch_norm_keeps_its_statistics_and_learns_its_affine_part() -> None:
    network = build_network("resnet18").train()
    freeze_batch_norm(network)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    network(images()).pow(4).sum().backward()
    after = network.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before if "running" in key)
    norms = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
    assert len(norms) == 20
    assert all(norm.weight.grad is not None for norm in norms)
    assert network.training
    assert network.features[4].training


def test_features_alone_are_a_file_of_weights(tmp_path: Path) -> None:
    source = build_network("resnet18", "mac")
    file = tmp_path / "imagenet-caffe-resnet18-features.pth"
    state = {k: v for k, v in source.features.state_dict().items() if "num_batches" not in k}
    assert "4.0.conv1.weight" in state
    torch.save(state, file)
    network = build_network("resnet18", "mac", weights=str(file))
    assert same_state(network, source)


def test_old_names_of_densenets_are_known(tmp_path: Path) -> None:
    classifier = torchvision.models.densenet121(weights=None)
    old = {
        key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2."): value
        for key, value in classifier.state_dict().items()
    }
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save(old, tmp_path / "densenet121.pth")
    network = build_network("densenet121", weights=tmp_path / "densenet121.pth")
    found = network.features.state_dict()["4.denselayer1.conv2.weight"]
    expected = classifier.state_dict()["features.denseblock1.denselayer1.conv2.weight"]
    assert torch.equal(found, expected)


def test_a_checkpoint_gives_the_parts_that_both_networks_have(tmp_path: Path) -> None:
    source = build_network("squeezenet1_1", "gem", whitening=True)
    with torch.no_grad():
        source.get_parameter("pool.p").fill_(2.5)
    file = tmp_path / "model.pth.tar"
    save_checkpoint(file, source, epoch=1, min_loss=1.0, optimizer={})

    twin = build_network("squeezenet1_1", "gem", whitening=True, weights=file)
    assert same_state(twin, source)
    other = build_network("squeezenet1_1", "gemmp", local_whitening=True, weights=file)
    assert same_state(other.features, source.features)
    assert other.get_parameter("pool.p").tolist() == [3.0] * 512

    with pytest.raises(ValueError, match=r"model.pth.tar has architecture 'squeezenet1_1'"):
        build_network("squeezenet1_0", weights=file)


def test_torchvision_weights_are_used_if_there_and_never_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_download(*_: object, **__: object) -> None:
        raise AssertionError("tried to download")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_download)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    message = r"squeezenet1_1-\w+.pth is not in .*checkpoints; .* get it from https://download.py"
    with pytest.raises(ValueError, match=message):
        build_network("squeezenet1_1", weights="torchvision")

    classifier = torchvision.models.squeezenet1_1(weights=None)
    (tmp_path / "checkpoints").mkdir()
    torch.save(classifier.state_dict(), tmp_path / "checkpoints" / "squeezenet1_1-b8a52dc0.pth")
    network = build_network("squeezenet1_1", weights="torchvision")
    assert same_state(network.features, classifier.features)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "resnet51"}, r"architecture is 'resnet51', expected one of alexnet, .*"),
        ({"pooling": "max"}, "pooling is 'max', expected one of mac, spoc, gem, gemmp, rmac"),
        ({"mean": [0.5, 0.5]}, r"mean is \[0.5, 0.5\], expected three numbers"),
        ({"std": (1, 1, 0)}, r"std is \(1, 1, 0\), expected three numbers above 0"),
        ({"weights": "imagenet"}, "weights is 'imagenet', expected 'none', 'torchvision' or an"),
    ],
)
def test_wrong_options_say_what_is_known(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_network(**({"architecture": "squeezenet1_1"} | options))  # type: ignore[arg-type]


def test_weights_of_another_architecture_name_the_first_tensor(tmp_path: Path) -> None:
    torch.save(torchvision.models.resnet18(weights=None).state_dict(), tmp_path / "r18.pth")
    with pytest.raises(ValueError, match=r"r18.pth does not fit resnet34: features.4.2.conv1.wei"):
        build_network("resnet34", weights=tmp_path / "r18.pth")
    with pytest.raises(ValueError, match=r"r18.pth does not fit squeezenet1_1: features.0.weight"):
        build_network("squeezenet1_1", weights=tmp_path / "r18.pth")

"""Checkpoints come back bit for bit, survive kills, and never run what is in them."""

import collections
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sl_retrieval.checkpoint import load_checkpoint, load_network, save_checkpoint
from sl_retrieval.network import ImageRetrievalNet, build_network
from sl_retrieval.solver import build_optimizer

LW = {
    "retrieval-SfM-120k": {
        "ss": {"m": np.arange(3.0)[:, None], "P": np.eye(3, dtype=np.float32)},
        "ms": {"m": np.zeros((3, 1)), "P": np.asfortranarray(np.arange(6.0).reshape(2, 3))},
    }
}


class Planted:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


class AddressAsObject:
    """An array of Python objects whose addresses are read from bytes."""

    def __reduce__(self) -> Any:
        return np.ndarray, ((1,), "O", b"\x10" * 8)


@pytest.fixture(scope="module")
def network() -> ImageRetrievalNet:
    return build_network("squeezenet1_1", regional=True, whitening=True).eval()


def save(file: Path, network: ImageRetrievalNet, **extra: Any) -> None:
    save_checkpoint(file, network, epoch=3, min_loss=0.25, optimizer={}, **extra)


def write(file: Path, network: ImageRetrievalNet, meta: dict[str, Any], **options: Any) -> None:
    content = {"meta": network.meta | meta, "state_dict": network.state_dict()}
    torch.save(content, file, **options)


def test_round_trip_is_bit_exact(tmp_path: Path, network: ImageRetrievalNet) -> None:
    optimizer = build_optimizer(network)
    network(torch.randn(1, 3, 64, 64)).sum().backward()
    optimizer.step()
    file = tmp_path / "model.pth.tar"
    state = optimizer.state_dict()
    tau = torch.tensor([0.1, 0.7])
    save_checkpoint(file, network, epoch=3, min_loss=0.25, optimizer=state, superloss={"tau": tau})

    loaded = load_checkpoint(file)
    assert set(loaded) == {"epoch", "meta", "state_dict", "min_loss", "optimizer", "superloss"}
    assert (loaded["epoch"], loaded["min_loss"]) == (3, 0.25)
    assert loaded["meta"] == network.meta
    assert torch.equal(loaded["superloss"]["tau"], tau)
    for index, moments in state["state"].items():
        for key, value in moments.items():
            assert torch.equal(loaded["optimizer"]["state"][index][key], value)
    # What cirtorch does, and any other reader of today.
    assert set(torch.load(file, weights_only=True)) == set(loaded)

    twin = load_network(file)
    assert not twin.training
    assert list(twin.state_dict()) == list(network.state_dict())
    for key, value in network.state_dict().items():
        assert torch.equal(twin.state_dict()[key], value), key
    image = torch.randn(1, 3, 70, 60)
    assert torch.equal(twin(image), network(image))


@pytest.mark.parametrize("is_zip", [True, False])
def test_learned_whitenings_are_read_as_arrays(
    tmp_path: Path, network: ImageRetrievalNet, is_zip: bool
) -> None:
    file = tmp_path / "model.pth"
    write(file, network, {"Lw": LW}, _use_new_zipfile_serialization=is_zip)
    found = load_network(file).meta["Lw"]
    for scale, arrays in LW["retrieval-SfM-120k"].items():
        for name, expected in arrays.items():
            array = found["retrieval-SfM-120k"][scale][name]
            assert type(array) is np.ndarray
            assert array.dtype == expected.dtype
            np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_arrays_of_old_and_new_numpy_are_read(
    tmp_path: Path, network: ImageRetrievalNet, module: bytes
) -> None:
    file = tmp_path / "model.pth"
    write(file, network, {"Lw": LW}, _use_new_zipfile_serialization=False)
    content = file.read_bytes()
    assert content.count(b"numpy._core.multiarray\n") + content.count(b"numpy.core.multiarray\n")
    for name in (b"numpy.core.multiarray\n", b"numpy._core.multiarray\n"):
        content = content.replace(name, module + b"\n")
    file.write_bytes(content)
    array = load_checkpoint(file)["meta"]["Lw"]["retrieval-SfM-120k"]["ss"]["m"]
    np.testing.assert_array_equal(array, np.arange(3.0)[:, None])


def test_whitenings_survive_another_round(tmp_path: Path, network: ImageRetrievalNet) -> None:
    write(tmp_path / "first", network, {"Lw": LW})
    save(tmp_path / "second", load_network(tmp_path / "first"))
    array = load_network(tmp_path / "second").meta["Lw"]["retrieval-SfM-120k"]["ms"]["P"]
    np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_planted_class_is_refused_and_not_run(
    tmp_path: Path, network: ImageRetrievalNet, is_zip: bool
) -> None:
    trace, file = tmp_path / "trace", tmp_path / "model.pth"
    write(file, network, {"Lw": Planted(trace)}, _use_new_zipfile_serialization=is_zip)
    torch.load(file, weights_only=False)
    assert trace.exists(), "the plant must work where it is let"
    trace.rmdir()
    for load in (load_checkpoint, load_network):
        with pytest.raises(ValueError, match=r"model.pth needs posix.mkdir, which is never run"):
            load(file)
    with pytest.raises(ValueError, match=r"model.pth needs posix.mkdir"):
        build_network("squeezenet1_1", weights=file)
    assert not trace.exists()


def test_bytes_never_become_objects(tmp_path: Path, network: ImageRetrievalNet) -> None:
    write(tmp_path / "model.pth", network, {"Lw": AddressAsObject()})
    with pytest.raises(ValueError, match=r"model.pth"):
        load_checkpoint(tmp_path / "model.pth")


@pytest.mark.parametrize("values", [np.arange(3), np.array([None, "x"])])
def test_other_arrays_than_floats_are_refused(
    tmp_path: Path, network: ImageRetrievalNet, values: np.ndarray
) -> None:
    write(tmp_path / "model.pth", network, {"Lw": values})
    with pytest.raises(ValueError, match=r"model.pth .* expected only tensors.*float arrays"):
        load_checkpoint(tmp_path / "model.pth")


def test_damaged_files_are_refused(tmp_path: Path, network: ImageRetrievalNet) -> None:
    file, damaged = tmp_path / "model.pth", tmp_path / "damaged.pth"
    save(file, network)
    content = file.read_bytes()
    contents = [content[: len(content) * part // 10] for part in range(10)]
    contents += [random.Random(seed).randbytes(1000) for seed in range(10)]
    contents += [b"\x80\x02" + random.Random(seed).randbytes(50) for seed in range(20)]
    contents += [pickle.dumps(network.meta, protocol=2), b"<html>404 not found</html>"]
    for bad in contents:
        damaged.write_bytes(bad)
        with pytest.raises(ValueError, match=r"damaged.pth"):
            load_checkpoint(damaged)
    with pytest.raises(ValueError, match=r"absent.pth does not exist"):
        load_checkpoint(tmp_path / "absent.pth")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds a list, expected a dict"),
        ({0: 1}, "expected a dict with names"),
        ({"conv1.weight": torch.ones(1)}, "no checkpoint: found conv1.weight, expected .* 'meta'"),
        ({"meta": {}, "state_dict": 3}, "expected a dict 'state_dict'"),
    ],
)
def test_other_files_are_no_checkpoints(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=rf"other.pth .*{message}"):
        load_checkpoint(tmp_path / "other.pth")


def test_options_that_meta_does_not_have_are_off(tmp_path: Path) -> None:
    network = build_network("squeezenet1_1", "mac")
    meta = {key: network.meta[key] for key in ("architecture", "pooling", "mean", "std")}
    torch.save({"meta": meta, "state_dict": network.state_dict()}, tmp_path / "model.pth")
    assert load_network(tmp_path / "model.pth").meta == network.meta


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"architecture": "vit"}, "architecture is 'vit', expected one of alexnet"),
        ({"architecture": "squeezenet1_0"}, r"features.0.weight is \(64, 3, 3, 3\), expected .*96"),
        ({"pooling": "mac"}, "pooling mac: pool.rpool.p is not a part of it"),
        ({"pooling": ["gem"]}, r"pooling is \['gem'\], expected one of"),
        ({"pooling": "gemmp"}, r"gemmp: pool.rpool.p is \(1,\), expected .* \(512,\)"),
        ({"regional": False}, "squeezenet1_1 with pooling gem: pool.p is missing"),
        ({"whitening": False}, "whiten.weight is not a part of it"),
        ({"local_whitening": True}, "lwhiten.weight is missing"),
        ({"mean": None}, "mean is None, expected three numbers"),
    ],
)
def test_state_that_does_not_fit_meta_names_file_and_tensor(
    tmp_path: Path, network: ImageRetrievalNet, meta: dict[str, Any], message: str
) -> None:
    write(tmp_path / "model.pth", network, meta)
    with pytest.raises(ValueError, match=rf"model.pth.*{message}"):
        load_network(tmp_path / "model.pth")


def test_meta_without_architecture_is_refused(tmp_path: Path) -> None:
    torch.save({"meta": {"pooling": "gem"}, "state_dict": {}}, tmp_path / "model.pth")
    with pytest.raises(ValueError, match=r"model.pth has no 'architecture' in meta, found pooling"):
        load_network(tmp_path / "model.pth")


def test_an_error_in_the_middle_of_saving_leaves_the_old_file(
    tmp_path: Path, network: ImageRetrievalNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.pth"
    save(file, network)
    old = file.read_bytes()

    def broken_save(content: Any, target: Path) -> None:
        target.write_bytes(old[:1000])
        raise OSError("disk full")

    def short_save(content: Any, target: Path) -> None:
        target.write_bytes(old[:1000])

    for replacement in (broken_save, short_save):
        with monkeypatch.context() as patch:
            patch.setattr(torch, "save", replacement)
            with pytest.raises((OSError, ValueError)):
                save(file, network)
        assert file.read_bytes() == old
        assert list(tmp_path.iterdir()) == [file]


def test_what_could_not_be_loaded_again_is_not_saved(
    tmp_path: Path, network: ImageRetrievalNet
) -> None:
    file = tmp_path / "model.pth"
    for extra in (Path("x"), collections.deque([1]), np.float64(1)):
        with pytest.raises(ValueError, match=r"model.pth could not be loaded again"):
            save(file, network, extra=extra)
    with pytest.raises(ValueError, match="extra has meta, state_dict, expected names that are"):
        save(file, network, state_dict={}, meta={})
    assert not list(tmp_path.iterdir())

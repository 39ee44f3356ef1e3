"""CIFAR files that the test writes, binary and pickled, are read back; others are refused."""

import os
import pickle
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from sl_bench.array_pickle import load_array_pickle
from sl_bench.cifar_files import CifarSplit, read_cifar

Bytes = NDArray[np.uint8]
FILES_10 = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]


def pixels(count: int, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072)).astype(np.uint8)


def save_python2_str(pickler: Any, value: bytes) -> None:
    pickler.write(b"T" + struct.pack("<i", len(value)) + value)


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2's str, as it stands in the original archives."""

    dispatch: ClassVar[dict[type, Any]] = pickle._Pickler.dispatch | {bytes: save_python2_str}


def write_pickle(file: Path, content: Any, python2: bool = False) -> None:
    with file.open("wb") as stream:
        if python2:
            Python2Pickler(stream, 2).dump(content)
        else:
            pickle.dump(content, stream, 4)


def write_cifar10(root: Path, form: str, count: int = 4) -> None:
    for number, name in enumerate(FILES_10):
        data, labels = pixels(count, number), [(number + k) % 10 for k in range(count)]
        if form == "binary":
            records = np.concatenate([np.array(labels, np.uint8)[:, None], data], axis=1)
            (root / f"{name}.bin").write_bytes(records.tobytes())
        else:
            content = {b"batch_label": b"x", b"labels": labels, b"data": data}
            write_pickle(root / name, content, form == "python2")


def write_cifar100(root: Path, form: str, count: int = 40) -> None:
    for seed, name in enumerate(("train", "test")):
        data, fine = pixels(count, seed), np.arange(count) * 7 % 100
        coarse = fine // 5
        if form == "binary":
            both = np.stack([coarse, fine], axis=1).astype(np.uint8)
            (root / f"{name}.bin").write_bytes(np.concatenate([both, data], axis=1).tobytes())
        else:
            content = {"data": data, "fine_labels": fine.tolist(), "coarse_labels": coarse.tolist()}
            write_pickle(root / name, content)


@pytest.mark.parametrize("folder", ["", "archive"])
@pytest.mark.parametrize("form", ["binary", "python2", "python3"])
def test_cifar10_is_read_back(tmp_path: Path, form: str, folder: str) -> None:
    inner = {"binary": "cifar-10-batches-bin"}.get(form, "cifar-10-batches-py")
    root = tmp_path / (inner if folder else "")
    root.mkdir(exist_ok=True)
    write_cifar10(root, form)
    train, test = (read_cifar(tmp_path, "cifar10", split) for split in ("train", "test"))
    expected = np.concatenate([pixels(4, number) for number in range(5)])
    np.testing.assert_array_equal(train.images.reshape(20, 3072), expected)
    assert train.labels.tolist() == [(n + k) % 10 for n in range(5) for k in range(4)]
    assert test.labels.tolist() == [5, 6, 7, 8] and train.coarse is None
    # The first 1024 bytes of a record are the red channel, row after row.
    assert train.images[0, 0, 1, 2] == expected[0, 34]


@pytest.mark.parametrize("form", ["binary", "python3"])
def test_cifar100_is_read_back_with_coarse_classes(tmp_path: Path, form: str) -> None:
    write_cifar100(tmp_path, form)
    split = read_cifar(tmp_path, "cifar100", "train")
    assert isinstance(split, CifarSplit) and split.coarse is not None
    np.testing.assert_array_equal(split.labels, np.arange(40) * 7 % 100)
    np.testing.assert_array_equal(split.coarse, split.labels // 5)
    np.testing.assert_array_equal(split.images.reshape(40, 3072), pixels(40, 0))


def test_a_truncated_binary_file_is_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path, "binary")
    file = tmp_path / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=f"{file} has 12287 bytes, expected a multiple of 3073"):
        read_cifar(tmp_path, "cifar10", "train")


def test_a_missing_batch_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path, "binary")
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_4\.bin does not exist"):
        read_cifar(tmp_path, "cifar10", "train")
    with pytest.raises(ValueError, match=r"has no train\.bin and no train"):
        read_cifar(tmp_path, "cifar100", "train")


def test_a_label_out_of_range_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_batch.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ValueError, match="labels from 10 to 10, expected 0 to 9"):
        read_cifar(tmp_path, "cifar10", "test")


@pytest.mark.parametrize(
    "content, message",
    [
        ({"labels": [1]}, "has no 'data', found labels"),
        ({"data": pixels(2, 0), "labels": [1]}, "labels of int64 and shape .1,., expected 2"),
        ({"data": pixels(2, 0)[:, :9], "labels": [1, 2]}, "expected bytes of shape"),
        ({"data": np.zeros((2, 3072)), "labels": [1, 2]}, "an array of type 'f8'"),
        ({"data": np.array([{}], dtype=object), "labels": [1]}, "an array of type 'O8'"),
        ([1, 2], "holds a list, expected a dict"),
    ],
)
def test_a_pickle_of_another_form_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    write_pickle(tmp_path / "test_batch", content)
    with pytest.raises(ValueError, match=message):
        read_cifar(tmp_path, "cifar10", "test")


class Planted:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


def test_planted_calls_are_refused_and_not_executed(tmp_path: Path) -> None:
    marker, file = tmp_path / "executed", tmp_path / "test_batch"
    planted = [
        Planted(os.mkdir, str(marker)),
        Planted(eval, f"__import__('os').mkdir({str(marker)!r})"),
        Planted(np.ndarray, (1,), "O", b"\x00" * 8),
        Planted(np.dtype, "O"),
    ]
    for object_ in planted:
        write_pickle(file, {"data": object_, "labels": [1]})
        with pytest.raises(ValueError, match=r"nothing of it was executed|not callable"):
            load_array_pickle(file)
    assert not marker.exists()


def test_a_truncated_pickle_is_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path, "python3")
    file = tmp_path / "test_batch"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=f"{file} is not a complete pickle"):
        read_cifar(tmp_path, "cifar10", "test")

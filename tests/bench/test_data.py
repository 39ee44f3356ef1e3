"""Data sets by name: sizes, classes, exact noise, what is held out; files of pictures."""

from pathlib import Path

import numpy as np
import pytest
from fvcore.common.config import CfgNode
from numpy.typing import NDArray

from sl_bench.config import load_config
from sl_bench.data import Dataset, Split, load_dataset
from sl_bench.noisy_data import load_data, make_noise
from sl_bench.picture_lists import read_clothing1m, read_utkface

NOISY = ["NOISE.KIND", "sym", "NOISE.RATE", "0.4"]


def cfg_of(*options: str) -> CfgNode:
    return load_config(None, list(options))


def dataset(labels: NDArray[np.int64], groups: list[int] | None = None) -> Dataset:
    images = np.zeros((len(labels), 1, 4, 4), np.uint8)
    split = Split(images, labels, np.arange(len(labels)))
    return Dataset(split, split, int(labels.max()) + 1, groups)


def test_symmetric_noise_changes_an_exact_number_and_the_seed_which() -> None:
    wrong = {}
    for seed in ("0", "1"):
        data = load_data(cfg_of(*NOISY, "SEED", seed))
        assert data.is_wrong.sum() == round(0.4 * 1200)
        assert (load_dataset(cfg_of()).test.targets == data.test.targets).all()
        wrong[seed] = data.is_wrong
    assert (wrong["0"] != wrong["1"]).any()
    again = load_data(cfg_of(*NOISY, "SEED", "7", "NOISE.SEED", "1"))
    np.testing.assert_array_equal(again.is_wrong, wrong["1"])


def test_the_noise_of_an_image_does_not_depend_on_how_many_are_used() -> None:
    every = load_data(cfg_of("NOISE.KIND", "sym", "NOISE.RATE", "1.0"))
    some = load_data(cfg_of("NOISE.KIND", "sym", "NOISE.RATE", "1.0", "DATASET.TRAIN_SIZE", "300"))
    of_id = dict(zip(every.train.ids.tolist(), every.train.targets.tolist(), strict=True))
    assert len(some.train.ids) == 300
    assert [of_id[i] for i in some.train.ids.tolist()] == some.train.targets.tolist()


def test_pairs_are_swapped_within_their_group_only() -> None:
    labels = np.repeat(np.arange(10), 50)
    groups = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    cfg = cfg_of("NOISE.KIND", "asym_pairs", "NOISE.RATE", "0.4")
    noisy = make_noise(cfg, dataset(labels, groups))
    wrong = np.flatnonzero(noisy != labels)
    pairs = {frozenset((int(labels[i]), int(noisy[i]))) for i in wrong}
    # One pair of each group that has two classes; the tenth class is alone.
    assert len(pairs) == 3 and all(groups[a] == groups[b] for a, b in map(tuple, pairs))
    assert len(wrong) == round(0.4 * 6 * 50)


def test_within_a_group_every_other_class_is_hit() -> None:
    labels = np.repeat(np.arange(10), 100)
    groups = [number // 5 for number in range(10)]
    cfg = cfg_of("NOISE.KIND", "asym_group", "NOISE.RATE", "0.2", "NOISE.GROUPS", str(groups))
    noisy = make_noise(cfg, dataset(labels))
    wrong = noisy != labels
    assert wrong.sum() == 200
    np.testing.assert_array_equal(noisy // 5, labels // 5)
    hit = {(int(a), int(b)) for a, b in zip(labels[wrong], noisy[wrong], strict=True)}
    assert len(hit) == 10 * 4


def test_noise_that_needs_groups_says_so() -> None:
    with pytest.raises(ValueError, match=r"NOISE\.GROUPS is empty and digits has no groups"):
        load_data(cfg_of("NOISE.KIND", "asym_group", "NOISE.RATE", "0.2"))
    with pytest.raises(ValueError, match=r"NOISE\.GROUPS has 2 entries, expected 10"):
        load_data(cfg_of("NOISE.KIND", "asym_pairs", "NOISE.GROUPS", "[0, 0]"))


def test_regression_targets_are_replaced_within_their_range() -> None:
    options = ["TASK", "regression", "LOSS.INPUT", "l2", "NOISE.KIND", "uniform"]
    data = load_data(cfg_of(*options, "NOISE.RATE", "0.6"))
    assert data.num_classes == 0 and data.is_wrong.sum() == round(0.6 * 1200)
    assert data.train.targets.min() >= 0 and data.train.targets.max() <= 9
    assert set(data.test.targets.tolist()) == set(range(10))


def test_held_out_images_are_no_training_images_and_keep_their_noise() -> None:
    whole = load_data(cfg_of(*NOISY))
    data = load_data(cfg_of(*NOISY, "DATASET.VALIDATION", "0.25"))
    assert data.validation is not None
    kept, held_out = data.train.ids.tolist(), data.validation.ids.tolist()
    assert (len(kept), len(held_out)) == (900, 300) and not set(kept) & set(held_out)
    noisy = dict(zip(whole.train.ids.tolist(), whole.train.targets.tolist(), strict=True))
    assert [noisy[i] for i in held_out] == data.validation.targets.tolist()
    assert [noisy[i] for i in kept] == data.train.targets.tolist()


def test_chosen_classes_are_renumbered_in_the_given_order() -> None:
    whole = load_dataset(cfg_of())
    some = load_dataset(cfg_of("DATASET.CLASSES", "[7, 2]"))
    assert some.num_classes == 2
    for split, before in ((some.train, whole.train), (some.test, whole.test)):
        assert isinstance(split.images, np.ndarray) and isinstance(before.images, np.ndarray)
        for new, old in ((0, 7), (1, 2)):
            expected = before.images[before.targets == old]
            np.testing.assert_array_equal(split.images[split.targets == new], expected)
    with pytest.raises(
        ValueError, match=r"DATASET\.CLASSES is \[0, 10\], expected numbers below 10"
    ):
        load_dataset(cfg_of("DATASET.CLASSES", "[0, 10]"))


def test_sizes_and_a_missing_folder_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"DATASET\.TEST_SIZE is 598, expected at most 597"):
        load_dataset(cfg_of("DATASET.TEST_SIZE", "598"))
    missing = str(tmp_path / "nowhere")
    with pytest.raises(
        ValueError, match=r"DATASET\.ROOT is .*nowhere, expected an existing folder"
    ):
        load_dataset(cfg_of("DATASET.NAME", "cifar10", "DATASET.ROOT", missing))


def test_ages_come_from_file_names(tmp_path: Path) -> None:
    (tmp_path / "part1").mkdir()
    for age in range(1, 101):
        name = f"{age}_{age % 2}_0_20170116174525125.jpg.chip.jpg"
        (tmp_path / "part1" / name).touch()
    train, test = read_utkface(tmp_path)
    assert len(test[0]) == 20 and sorted([*train[1], *test[1]]) == list(range(1, 101))
    assert all(int(file.name.split("_")[0]) == age for file, age in zip(*train, strict=True))
    (tmp_path / "holiday.jpg").touch()
    assert len(read_utkface(tmp_path)[0][0]) == 80
    (tmp_path / "beach.jpg").touch()
    with pytest.raises(ValueError, match=r"beach\.jpg is not named <age>_"):
        read_utkface(tmp_path)


def test_original_and_plain_lists_of_clothing1m_are_read(tmp_path: Path) -> None:
    names = [f"images/{n}/a picture {n}.jpg" for n in range(6)]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "train.txt").write_text("".join(f"{name} {n}\n" for n, name in enumerate(names)))
    (tmp_path / "test.txt").write_text(f"{names[5]} 13\n\n")
    train, test = read_clothing1m(tmp_path)
    assert train[1].tolist() == list(range(6)) and test[1].tolist() == [13]
    assert train[0][3] == tmp_path / names[3]
    # The original lists win, and only images of the key list count.
    (tmp_path / "noisy_train_key_list.txt").write_text("\n".join(names[:2]))
    (tmp_path / "noisy_label_kv.txt").write_text("".join(f"{name} 4\n" for name in names))
    (tmp_path / "clean_test_key_list.txt").write_text(names[2])
    (tmp_path / "clean_label_kv.txt").write_text(f"{names[2]} 9\n")
    train, test = read_clothing1m(tmp_path)
    assert (train[1].tolist(), test[1].tolist()) == ([4, 4], [9])


@pytest.mark.parametrize(
    "line, message",
    [
        ("gone.jpg 3", "lists gone.jpg, which is not a file in"),
        ("here.jpg", "has the line 'here.jpg', expected a path and a class"),
        ("here.jpg -1", "has the line 'here.jpg -1'"),
        ("", "is empty"),
    ],
)
def test_a_broken_list_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "here.jpg").touch()
    (tmp_path / "train.txt").write_text(line)
    (tmp_path / "test.txt").write_text("here.jpg 0")
    with pytest.raises(ValueError, match=message):
        read_clothing1m(tmp_path)
    (tmp_path / "train.txt").unlink()
    with pytest.raises(ValueError, match=r"train\.txt does not exist"):
        read_clothing1m(tmp_path)

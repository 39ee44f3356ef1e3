"""Label noise: exact, nested, the same everywhere, and independent of the order of the data."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sl_core import noise

RATES = st.floats(0, 1)
SEEDS = st.integers(-(2**40), 2**40)


def labels_of(count: int, num_classes: int) -> np.ndarray:
    return np.arange(count) * 7919 % num_classes


def python_hash(seed: int, stream: int, *columns: int | str) -> int:
    """The documented hash once more, in plain Python integers."""

    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    state = mix(mix(seed % 2**64) ^ stream)
    for column in columns:
        if isinstance(column, str):
            digest = hashlib.blake2b(column.encode(), digest_size=8).digest()
            column = int.from_bytes(digest, "little")
        state = mix(state ^ column % 2**64)
    return state


@given(st.integers(0, 300), st.integers(2, 20), RATES, SEEDS)
def test_symmetric_flips_exactly_the_stated_number_to_another_class(
    count: int, num_classes: int, rate: float, seed: int
) -> None:
    labels = labels_of(count, num_classes)
    noisy = noise.symmetric(labels, num_classes, rate, seed)
    assert (noisy != labels).sum() == round(rate * count)
    assert count == 0 or (noisy.min() >= 0 and noisy.max() < num_classes)


@given(RATES, RATES, SEEDS)
def test_the_lower_rate_lies_inside_the_higher_one(a: float, b: float, seed: int) -> None:
    labels = labels_of(200, 10)
    low, high = (noise.symmetric(labels, 10, rate, seed) for rate in sorted((a, b)))
    flipped = low != labels
    np.testing.assert_array_equal(high[flipped], low[flipped])


@given(RATES, SEEDS, st.permutations(range(50)))
def test_noise_belongs_to_the_id_not_to_the_position(
    rate: float, seed: int, order: list[int]
) -> None:
    labels, images = labels_of(50, 5), [f"image{i // 4}" for i in range(50)]
    instances = np.arange(50) % 4
    noisy = noise.symmetric(labels, 5, rate, seed, ids=(images, instances))
    shuffled_ids = ([images[i] for i in order], instances[order])
    shuffled = noise.symmetric(labels[order], 5, rate, seed, ids=shuffled_ids)
    np.testing.assert_array_equal(shuffled, noisy[order])


@given(RATES, SEEDS)
def test_equals_the_documented_rule_in_plain_python(rate: float, seed: int) -> None:
    labels, images = labels_of(40, 20), [f"{i // 3:06d}" for i in range(40)]
    ids = [(images[i], i % 3) for i in range(40)]
    expected = labels.copy()
    for i in sorted(range(40), key=lambda i: python_hash(seed, 0, *ids[i]))[: round(rate * 40)]:
        others = [c for c in range(20) if c != labels[i]]
        expected[i] = others[(python_hash(seed, 1, *ids[i]) >> 32) * 19 >> 32]
    noisy = noise.symmetric(labels, 20, rate, seed, ids=(images, np.arange(40) % 3))
    np.testing.assert_array_equal(noisy, expected)


def test_the_same_on_every_machine_and_numpy_version() -> None:
    """If this fails, every noisy data set changes: do not edit the digests."""
    labels = labels_of(1000, 20)
    assert noise.symmetric(labels[:12], 20, 0.5, seed=0).tolist() == SYMMETRIC_12
    assert noise.digest(noise.symmetric(labels, 20, 0.4, seed=1)) == DIGESTS["symmetric"]
    assert noise.digest(noise.symmetric_keep(labels, 20, 0.4, seed=1)) == DIGESTS["keep"]
    assert noise.digest(noise.asymmetric(labels, {0: [1, 2]}, 0.4, 1)) == DIGESTS["asymmetric"]
    assert noise.digest(noise.regression(labels, 0, 9, 0.4, seed=1)) == DIGESTS["regression"]


SYMMETRIC_12 = [6, 5, 18, 0, 16, 15, 13, 13, 12, 13, 10, 10]
DIGESTS = {
    "symmetric": "09e13857645b742ffbfe1d79e2dc56b4814f1c6b61ac2c2fddf0ecbbbe3a6ebd",
    "keep": "dc7917ed071165736d162c603d1aaefe77239c2a7e2526a6517b8cb00cab94f4",
    "asymmetric": "342c9b86620d063fc0d4b162bab88d1a0da912b8b6aa501bf3b9124c4335fd9d",
    "regression": "bab6cde73f6b8f6b046c0839b0ec5a2c011dc1336b59fa787ddbe73eb3755aa9",
}


def test_every_other_class_is_reached_evenly_class_20_of_20_included() -> None:
    labels = np.zeros(190_000, dtype=int)
    found = Counter(noise.symmetric(labels, 20, 1.0, seed=3).tolist())
    assert set(found) == set(range(1, 20))
    expected = 190_000 / 19
    chi_square = sum((count - expected) ** 2 / expected for count in found.values())
    assert chi_square < 42.3, "18 degrees of freedom, 1 in 1000"


def test_symmetric_keep_redraws_over_all_classes() -> None:
    labels = np.full(100_000, 7)
    noisy = noise.symmetric_keep(labels, 10, 0.5, seed=0)
    chosen = noise.selected(100_000, 0.5, seed=0)
    assert len(chosen) == 50_000
    found = Counter(noisy[chosen].tolist())
    assert set(found) == set(range(10))
    chi_square = sum((count - 5000) ** 2 / 5000 for count in found.values())
    assert chi_square < 27.9, "9 degrees of freedom, 1 in 1000"
    untouched = np.setdiff1d(np.arange(100_000), chosen)
    np.testing.assert_array_equal(noisy[untouched], labels[untouched])


@given(RATES, SEEDS)
def test_asymmetric_follows_the_map_with_exact_counts(rate: float, seed: int) -> None:
    labels = labels_of(300, 6)
    class_map: dict[int, int | list[int]] = {0: 1, 2: [3, 4]}
    noisy = noise.asymmetric(labels, class_map, rate, seed)
    changed = noisy != labels
    assert changed.sum() == round(rate * np.isin(labels, [0, 2]).sum())
    assert set(zip(labels[changed].tolist(), noisy[changed].tolist(), strict=True)) <= {
        (0, 1),
        (2, 3),
        (2, 4),
    }


def test_the_coarse_class_noises_of_the_papers() -> None:
    coarse = [fine // 5 for fine in range(100)]
    others = noise.within_groups(coarse)
    assert all(len(others[fine]) == 4 and fine not in others[fine] for fine in range(100))
    assert all(target // 5 == fine // 5 for fine in range(100) for target in others[fine])
    pairs = noise.swapped_pairs(coarse, seed=0)
    assert len(pairs) == 40
    assert Counter(fine // 5 for fine in pairs) == Counter(dict.fromkeys(range(20), 2))
    assert all(pairs[pairs[fine]] == fine and pairs[fine] // 5 == fine // 5 for fine in pairs)
    assert noise.swapped_pairs(coarse, seed=1) != pairs
    labels = labels_of(5000, 100)
    assert (noise.asymmetric(labels, others, 0.2, 0) != labels).sum() == 1000
    assert noise.within_groups([0, 0, 1]) == {0: [1], 1: [0]}


@given(RATES, SEEDS)
def test_regression_replaces_exactly_the_stated_number(rate: float, seed: int) -> None:
    targets = np.full(150, -1.0)
    noisy = noise.regression(targets, 2.0, 5.0, rate, seed)
    replaced = noisy != -1
    assert replaced.sum() == round(rate * 150)
    assert ((noisy[replaced] >= 2) & (noisy[replaced] < 5)).all()


def test_regression_draws_are_uniform() -> None:
    noisy = noise.regression(np.zeros(100_000), 0.0, 1.0, 1.0, seed=0)
    ordered = np.sort(noisy)
    assert np.abs(ordered - (np.arange(100_000) + 0.5) / 100_000).max() < 0.0062, "1 in 1000"


def test_different_seeds_choose_different_samples() -> None:
    first, second = (set(noise.selected(1000, 0.4, seed).tolist()) for seed in (0, 1))
    assert 100 < len(first & second) < 220, "160 expected"


def test_the_arguments_are_not_changed() -> None:
    labels = labels_of(50, 5)
    before = labels.copy()
    noise.symmetric(labels, 5, 1.0, 0)
    noise.asymmetric(labels, {0: 1}, 1.0, 0)
    np.testing.assert_array_equal(labels, before)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_0_to_1_is_an_error(rate: float) -> None:
    with pytest.raises(ValueError, match=r"rate is .*, expected a number in \[0, 1\]"):
        noise.symmetric([0, 1], 2, rate, 0)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="range of labels is '0 to 3', expected 0 to 2"):
        noise.symmetric([0, 3], 3, 0.5, 0)
    with pytest.raises(ValueError, match=r"labels is 'float64 of shape \(2,\)', expected integers"):
        noise.symmetric([0.5, 1.5], 3, 0.5, 0)
    with pytest.raises(ValueError, match="num_classes is 1, expected at least 2"):
        noise.symmetric([0], 1, 0.5, 0)
    with pytest.raises(ValueError, match=r"shape of ids is \(1,\), expected \(2,\)"):
        noise.symmetric([0, 1], 2, 0.5, 0, ids=["a"])
    with pytest.raises(ValueError, match="dtype of ids is 'float64', expected integers or strings"):
        noise.symmetric([0, 1], 2, 0.5, 0, ids=np.array([0.1, 0.2]))
    with pytest.raises(ValueError, match=r"class_map\[0\] is \[\], expected one or more other"):
        noise.asymmetric([0, 1], {0: []}, 0.5, 0)
    with pytest.raises(ValueError, match=r"class_map\[0\] is \[0, 1\], expected one or more other"):
        noise.asymmetric([0, 1], {0: [0, 1]}, 0.5, 0)
    with pytest.raises(ValueError, match=r"\(low, high\) is \(1, 0\), expected low <= high"):
        noise.regression([0.0], 1, 0, 0.5, 0)

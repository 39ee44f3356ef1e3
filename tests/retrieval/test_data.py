"""Data sets in memory, by name, and with noise by name."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sl_core import noise
from sl_retrieval import catalog
from sl_retrieval.data import RetrievalData


def make_data(count: int = 300, num_labels: int = 10, root: str = "") -> RetrievalData:
    ids = tuple(f"folder/{i}.jpg" for i in range(count))
    return RetrievalData(
        name="base",
        images=tuple(root + name for name in ids),
        labels=np.arange(count, dtype=np.int64) % num_labels,
        label_names=tuple(f"landmark {i}" for i in range(num_labels)),
        pairs=np.array([[0, 10], [1, 11], [2, 12]], dtype=np.int64),
        ids=ids,
    )


@pytest.fixture(autouse=True)
def _empty_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_builders", {})


def test_ids_are_the_images_unless_given() -> None:
    data = RetrievalData("d", ("a", "b"), np.array([0, 0]), ("x",))
    assert data.ids == ("a", "b")
    assert not data.is_wrong.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": (), "ids": ()}, "no images"),
        ({"ids": ("a",)}, "1 ids, expected 300"),
        ({"labels": np.zeros(299, np.int64)}, r"labels are int64 of shape \(299,\).*\(300,\)"),
        ({"labels": np.zeros(300)}, "labels are float64.*expected int64"),
        ({"labels": np.full(300, 10)}, "labels are 10 to 10, expected 0 to 9"),
        ({"labels": np.full(300, -1)}, "labels are -1 to -1, expected 0 to 9"),
        ({"clean_labels": np.full(300, 11)}, "clean_labels are 11 to 11"),
        ({"pairs": np.zeros((4, 3), np.int64)}, r"pairs are .*expected int64 of shape \(4, 2\)"),
        ({"pairs": np.array([[0, 300]])}, "pairs are 0 to 300, expected 0 to 299"),
    ],
)
def test_wrong_content_is_refused_with_the_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"data set 'base': {message}"):
        replace(make_data(), **change)


def test_without_drops_images_and_keeps_pairs_on_the_same_images() -> None:
    data = replace(make_data(root="/r/"), clean_labels=np.arange(300, dtype=np.int64)[::-1] % 10)
    assert data.pairs is not None
    less = data.without([299, 1, 5])
    kept = [i for i in range(300) if i not in (1, 5, 299)]
    assert less.images == tuple(data.images[i] for i in kept)
    assert less.ids == tuple(data.ids[i] for i in kept)
    assert np.array_equal(less.labels, data.labels[kept])
    assert less.clean_labels is not None
    assert data.clean_labels is not None
    assert np.array_equal(less.clean_labels, data.clean_labels[kept])
    assert less.pairs is not None
    assert [[less.ids[i] for i in pair] for pair in less.pairs] == [
        [data.ids[i] for i in pair] for pair in data.pairs[[0, 2]]
    ]
    assert len(data.images) == 300


@pytest.mark.parametrize("percent", [0, 1, 20, 40, 100])
def test_sym_makes_exactly_so_many_labels_wrong(
    percent: int, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.register("base", make_data)
    with caplog.at_level(logging.INFO, "sl_retrieval.catalog"):
        noisy = catalog.get(f"base_sym{percent}_s3")
    wrong = round(percent / 100 * 300)
    assert noisy.is_wrong.sum() == wrong
    assert noisy.name == f"base_sym{percent}_s3"
    assert noisy.clean_labels is not None
    assert np.array_equal(noisy.clean_labels, make_data().labels)
    assert noisy.pairs is None, "fixed pairs would be clean whatever the labels are"
    assert f"{wrong} of 300 labels are wrong, digest {noise.digest(noisy.labels)}" in caplog.text


def test_symkeep_may_draw_the_own_label() -> None:
    catalog.register("base", lambda: make_data(3000))
    wrong = catalog.get("base_symkeep50_s0").is_wrong.sum()
    assert 1300 < wrong < 1400, "half of the labels, a tenth of which stay as they are"


def test_smaller_rates_lie_inside_larger_ones_and_seeds_differ() -> None:
    catalog.register("base", make_data)
    less, more = catalog.get("base_sym20_s0"), catalog.get("base_sym40_s0")
    assert more.is_wrong[less.is_wrong].all()
    assert np.array_equal(more.labels[less.is_wrong], less.labels[less.is_wrong])
    assert not np.array_equal(less.is_wrong, catalog.get("base_sym20_s1").is_wrong)


def test_noise_depends_on_ids_alone_not_on_where_images_lie_or_their_order() -> None:
    catalog.register("here", lambda: make_data(root="/here/"))
    catalog.register("there", lambda: make_data(root="/there/"))
    here, there = catalog.get("here_sym40_s0"), catalog.get("there_sym40_s0")
    assert here.images != there.images
    assert np.array_equal(here.labels, there.labels)

    def reversed_data() -> RetrievalData:
        data = make_data()
        return replace(
            data,
            images=data.images[::-1],
            ids=data.ids[::-1],
            labels=data.labels[::-1].copy(),
        )

    catalog.register("reversed", reversed_data)
    assert np.array_equal(catalog.get("reversed_sym40_s0").labels[::-1], here.labels)


def test_true_labels_of_a_base_that_knows_them_are_kept() -> None:
    clean = (np.arange(300, dtype=np.int64) + 1) % 10
    catalog.register("base", lambda: replace(make_data(), clean_labels=clean))
    kept = catalog.get("base_sym40_s0").clean_labels
    assert kept is not None
    assert np.array_equal(kept, clean)


@pytest.mark.parametrize(
    "name", ["other", "other_sym20_s0", "base_asym20_s0", "base_sym20", "base_sym20_s0_sym20_s0"]
)
def test_unknown_names_list_the_known_ones_and_the_grammar(name: str) -> None:
    catalog.register("base", make_data)
    catalog.register("another", make_data)
    expected = f"unknown data set '{name}', expected one of another, base, .*sym.symkeep.*percent"
    with pytest.raises(ValueError, match=expected):
        catalog.get(name)


def test_more_than_100_percent_and_second_registrations_are_refused() -> None:
    catalog.register("base", make_data)
    with pytest.raises(ValueError, match="'base_sym101_s0': 101 %, expected 0 to 100"):
        catalog.get("base_sym101_s0")
    with pytest.raises(ValueError, match="'base' is registered already"):
        catalog.register("base", make_data)
    assert catalog.names() == ("base",)


def test_data_sets_are_built_when_they_are_asked_for() -> None:
    calls = []

    def counting(build: Callable[[], RetrievalData]) -> Callable[[], RetrievalData]:
        def counted() -> RetrievalData:
            calls.append(1)
            return build()

        return counted

    catalog.register("base", counting(make_data))
    assert not calls
    catalog.get("base")
    assert len(calls) == 1

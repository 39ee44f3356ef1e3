"""Ground truth files: pickle and JSON read the same, and everything malformed is named."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sl_retrieval.ground_truth import (
    CLASSIC,
    GroundTruth,
    checked_relevance,
    find_ground_truth,
    image_file,
    load_ground_truth,
)

Content = dict[str, Any]


def revisited() -> Content:
    first = {"bbx": [136.5, 34, 648.5, 955], "easy": [0, 4], "hard": [2], "junk": [1]}
    second: Content = {"bbx": [0, 0, 5, 5], "easy": [], "hard": [3, 1], "junk": []}
    return {"imlist": list("abcde"), "qimlist": ["q0", "q1"], "gnd": [first, second]}


def classic() -> Content:
    return {"imlist": list("abc"), "qimlist": ["q"], "gnd": [{"ok": [2, 0], "junk": [1]}]}


def written(folder: Path, content: object, suffix: str = ".json") -> Path:
    file = folder / f"gnd_toy{suffix}"
    plain = json.dumps(content).encode() if suffix == ".json" else pickle.dumps(content, 2)
    file.write_bytes(plain)
    return file


def as_lists(truth: GroundTruth) -> list[dict[str, list[int]]]:
    return [{k: v.tolist() for k, v in entry.items()} for entry in truth.relevance]


@pytest.mark.parametrize("suffix", [".pkl", ".json"])
def test_the_revisited_form_is_read(tmp_path: Path, suffix: str) -> None:
    truth = load_ground_truth(written(tmp_path, revisited(), suffix))
    assert (truth.name, truth.images, truth.queries) == ("toy", tuple("abcde"), ("q0", "q1"))
    assert truth.boxes == ((136.5, 34.0, 648.5, 955.0), (0.0, 0.0, 5.0, 5.0))
    assert as_lists(truth) == [
        {"easy": [0, 4], "hard": [2], "junk": [1]},
        {"easy": [], "hard": [3, 1], "junk": []},
    ]
    assert all(a.dtype == np.int64 for entry in truth.relevance for a in entry.values())


@pytest.mark.parametrize("suffix", [".pkl", ".json"])
def test_the_classic_form_is_read_and_boxes_are_optional(tmp_path: Path, suffix: str) -> None:
    truth = load_ground_truth(written(tmp_path, classic(), suffix))
    assert as_lists(truth) == [{"ok": [2, 0], "junk": [1]}]
    assert truth.boxes == (None,)


def in_query(number: int, **changes: object) -> Callable[[Content], None]:
    return lambda content: content["gnd"][number].update(changes)


BROKEN: list[tuple[Callable[[Content], object], str]] = [
    (in_query(1, hard=[5]), "query 1, hard lists image 5, expected 0 to 4"),
    (in_query(0, junk=[-1]), "query 0, junk lists image -1"),
    (in_query(0, easy=[0, 2]), "query 0 lists image 2 twice, in easy and hard"),
    (in_query(1, hard=[3, 3]), "query 1 lists image 3 twice, in hard"),
    (in_query(0, easy=[0.5]), r"query 0, easy is \[0.5\], expected a list of integers"),
    (in_query(0, easy="0"), "query 0, easy is 0, expected a list of integers"),
    (in_query(0, easy=[True]), "query 0, easy"),
    (in_query(0, easy=[[0], [1, 2]]), "query 0, easy"),
    (in_query(1, bbx=[0, 0, 5]), "query 1, bbx"),
    (in_query(1, bbx=[5, 0, 5, 5]), "query 1, bbx"),
    (in_query(1, bbx=[0, 6, 5, 5]), "query 1, bbx"),
    (in_query(1, bbx=[0, 0, float("inf"), 5]), "query 1, bbx"),
    (in_query(1, bbx="0055"), "query 1, bbx"),
    (lambda c: c["gnd"][1].pop("junk"), "query 1 has .*, expected the keys easy, hard, junk"),
    (lambda c: c["gnd"][0].pop("easy"), "query 0 has .*, expected the keys easy, hard, junk"),
    (lambda c: c["gnd"].__setitem__(0, 3), "query 0 has int"),
    (lambda c: c["gnd"].pop(), "gnd has 1 entries, qimlist has 2"),
    (lambda c: c.pop("imlist"), "imlist is missing"),
    (lambda c: c.update(qimlist="q0"), "qimlist is str"),
    (lambda c: c.update(imlist=["a", 3]), r"imlist\[1\] is 3"),
]


@pytest.mark.parametrize("suffix", [".pkl", ".json"])
@pytest.mark.parametrize(("break_it", "message"), BROKEN)
def test_malformed_content_is_named(
    tmp_path: Path, break_it: Callable[[Content], object], message: str, suffix: str
) -> None:
    content = revisited()
    break_it(content)
    with pytest.raises(ValueError, match=rf"gnd_toy\{suffix}.*{message}"):
        load_ground_truth(written(tmp_path, content, suffix))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[1]", '"\xff'])
def test_a_file_that_is_no_such_json_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gnd_x.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"gnd_x\.json"):
        load_ground_truth(file)


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gnd\.mat.*\.pkl or \.json"):
        load_ground_truth(tmp_path / "gnd.mat")


def test_arrays_are_accepted_where_lists_are() -> None:
    entry = {"ok": np.array([3, 1], np.uint8), "junk": np.array([])}
    checked = checked_relevance(entry, CLASSIC, 4, "here")
    assert checked["ok"].tolist() == [3, 1]
    assert checked["junk"].tolist() == []


def test_the_pickle_is_found_before_the_json_and_absence_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"'toy'.*gnd_toy\.pkl"):
        find_ground_truth(tmp_path, "toy")
    in_json = written(folder, revisited())
    assert find_ground_truth(tmp_path, "toy") == in_json
    pickled = written(folder, revisited(), ".pkl")
    assert find_ground_truth(tmp_path, "toy") == pickled


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("all_souls_000013", "all_souls_000013.jpg"),
        ("a.JPG", "a.JPG"),
        ("b.png", "b.png"),
        ("st. paul 1.5", "st. paul 1.5.jpg"),
        ("folder/c", "folder/c.jpg"),
    ],
)
def test_image_files_get_a_suffix_if_they_have_none(name: str, file: str) -> None:
    assert image_file(Path("root"), "roxford5k", name) == Path("root/roxford5k/jpg", file)

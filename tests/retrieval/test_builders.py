"""Data sets from lists, folders and cirtorch pickles; bad files give one clear message."""

import functools
import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sl_retrieval import catalog
from sl_retrieval.builders import (
    from_cirtorch_pickle,
    from_folders,
    from_list_file,
    register_builtin,
)


@pytest.fixture(autouse=True)
def _empty_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_builders", {})


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(file, "PNG")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    touch(*(folder / name for name in ("a.jpg", "b.jpeg", "sub/c.png", "d.e")))
    return folder


LISTS = {
    "csv": "image,landmark\na,rome\nb,oslo\nsub/c,rome\nd.e,Bern\n",
    "tsv, other columns and order": (
        "label\tsize\tpath\nrome\t1\ta.jpg\noslo\t1\tb\nrome\t2\tsub/c.png\nBern\t3\td.e\n"
    ),
    "no header": "a rome\nb.jpeg   oslo\n\n  sub/c rome\nd.e Bern\n",
    "no header, comma": "a,rome\nb,oslo\nsub/c,rome\nd.e,Bern",
    "capitals, bom, crlf": "\ufeffPath Label\r\na rome\r\nb oslo\r\nsub/c rome\r\nd.e Bern",
}


@pytest.mark.parametrize("form", LISTS)
def test_every_form_of_list_gives_the_same_data(photos: Path, form: str) -> None:
    file = photos.parent / "list"
    file.write_text(LISTS[form], encoding="utf-8", newline="")
    data = from_list_file("mine", file, photos)
    assert data.label_names == ("Bern", "oslo", "rome")
    assert data.labels.tolist() == [2, 1, 2, 0]
    found = [str(photos / name) for name in ("a.jpg", "b.jpeg", "sub/c.png", "d.e")]
    assert list(data.images) == found
    assert data.pairs is None


@pytest.mark.parametrize(
    "content", ['image,label\n"x, y","Piazza, Roma"\n', "image\tlabel\nx, y\tPiazza, Roma\n"]
)
def test_names_with_commas_and_spaces(photos: Path, content: str) -> None:
    touch(photos / "x, y.jpg")
    file = photos.parent / "list.csv"
    file.write_text(content)
    data = from_list_file("mine", file, photos)
    assert data.images == (str(photos / "x, y.jpg"),)
    assert data.label_names == ("Piazza, Roma",)


def test_first_line_decides_for_tabs_before_commas(photos: Path) -> None:
    touch(photos / "x, y.jpg")
    file = photos.parent / "list.tsv"
    file.write_text("x, y\tRoma\na\tOslo, Norway\n")
    assert from_list_file("mine", file, photos).label_names == ("Oslo, Norway", "Roma")


def test_split_keeps_its_rows(photos: Path) -> None:
    file = photos.parent / "list.csv"
    file.write_text("image,split,label\na,train,x\nb,val,y\nsub/c,train,z\n")
    assert from_list_file("mine", file, photos, "train").ids == ("a", "sub/c")
    assert from_list_file("mine", file, photos, "train").label_names == ("x", "z")
    assert len(from_list_file("mine", file, photos).ids) == 3


@pytest.mark.parametrize(
    ("content", "split", "message"),
    [
        ("", None, "is empty, expected a header"),
        ("image,label\n", None, "has no rows"),
        ("image,class\na,x\n", None, r"begins with \['image', 'class'\], expected a header"),
        ("a,x,1\n", None, "begins with .*expected a header"),
        ("image,path,label\na,a,x\n", None, "has 2 columns for the image, expected one"),
        ("image,label\na,x\nb\n", None, "line 3: 1 columns, expected 2"),
        ("image,label\na,x\nb,\n", None, "line 3: empty image or label"),
        ("image,label\na,x\n", "train", "no column split, but split 'train'"),
        ("image,label,split\na,x,val\n", "train", "only splits val, expected .* split 'train'"),
        ("/etc/a,x\n", None, "'/etc/a' is an absolute path, expected names relative"),
    ],
)
def test_bad_lists_say_what_is_wrong(
    photos: Path, content: str, split: str | None, message: str
) -> None:
    file = photos.parent / "bad.csv"
    file.write_text(content)
    with pytest.raises(ValueError, match=rf"bad\.csv.*{message}"):
        from_list_file("mine", file, photos, split)


def test_missing_list_folder_and_binary_list(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no list file .*none\.csv, expected a header"):
        from_list_file("mine", tmp_path / "none.csv", photos)
    file = tmp_path / "list.csv"
    file.write_bytes(b"a,x\xff\n")
    with pytest.raises(ValueError, match=r"list\.csv is not UTF-8"):
        from_list_file("mine", file, photos)
    file.write_text("a,x\n")
    with pytest.raises(ValueError, match=r"'mine': no folder .*nowhere"):
        from_list_file("mine", file, tmp_path / "nowhere")


def test_missing_images_are_reported_and_skipped_up_to_a_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{i}" for i in range(100)]
    touch(*(tmp_path / f"{name}.jpg" for name in names if name != "7"))
    file = tmp_path / "list.csv"
    file.write_text("".join(f"{name},label{int(name) % 9}\n" for name in names))
    data = from_list_file("mine", file, tmp_path)
    assert len(data.images) == 99
    assert "7" not in data.ids
    assert "of 100 images" in caplog.text
    assert "1 are (7) missing" in caplog.text
    (tmp_path / "8.jpg").unlink()
    with pytest.raises(ValueError, match=r"2 are \(7, 8\) missing .*expected at most 1\.0%"):
        from_list_file("mine", file, tmp_path)
    assert len(from_list_file("mine", file, tmp_path, max_missing=0.02).images) == 98


def test_labels_keep_their_numbers_when_images_are_missing(photos: Path) -> None:
    file = photos.parent / "list.csv"
    file.write_text("none,aaa\na,rome\nb,oslo\n")
    data = from_list_file("mine", file, photos, max_missing=0.5)
    assert data.label_names == ("aaa", "oslo", "rome")
    assert data.labels.tolist() == [2, 1]


def test_images_listed_twice_are_kept_once_and_reported(
    photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = photos.parent / "list.csv"
    file.write_text("a,rome\nb,oslo\na,rome\nb,rome\n")
    data = from_list_file("mine", file, photos)
    assert data.ids == ("a", "b")
    assert data.labels.tolist() == [1, 0]
    assert "2 images (a, b (another label)) listed more than once" in caplog.text


def test_folders_give_one_landmark_each(tmp_path: Path) -> None:
    names = ("rome/2.jpg", "oslo/deep/1.PNG", "oslo/3.jpeg", "rome/._2.jpg", "rome/notes.txt")
    touch(*(tmp_path / name for name in names), tmp_path / "loose.jpg")
    (tmp_path / "empty").mkdir()
    data = from_folders("mine", tmp_path)
    assert data.ids == ("oslo/3.jpeg", "oslo/deep/1.PNG", "rome/2.jpg")
    assert data.labels.tolist() == [0, 0, 1]
    assert data.label_names == ("oslo", "rome")
    assert data.images[2] == str(tmp_path / "rome/2.jpg")


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    touch(tmp_path / "loose.jpg")
    with pytest.raises(ValueError, match=r"'mine': no .jpg.* below the sub-folders of"):
        from_folders("mine", tmp_path)
    with pytest.raises(ValueError, match=r"'mine': no folder .*nowhere, expected one with"):
        from_folders("mine", tmp_path / "nowhere")


@pytest.mark.parametrize("form", ["list", "folders"])
def test_noise_is_the_same_wherever_the_folder_lies(tmp_path: Path, form: str) -> None:
    here, there = tmp_path / "here", tmp_path / "far" / "away"
    touch(*(here / f"landmark{i % 5}" / f"{i}.png" for i in range(50)))
    rows = (f"landmark{i % 5}/{i},{i % 5}\n" for i in range(50))
    (here / "list.csv").write_text("".join(rows))
    shutil.copytree(here, there)
    for name, root in (("here", here), ("there", there)):
        build = {
            "list": functools.partial(from_list_file, name, root / "list.csv", root),
            "folders": functools.partial(from_folders, name, root),
        }[form]
        catalog.register(name, build)
    first, second = catalog.get("here_sym40_s0"), catalog.get("there_sym40_s0")
    assert first.is_wrong.sum() == 20
    assert first.images != second.images
    assert np.array_equal(first.labels, second.labels)


CIDS = ["0123456789abcdef", "0123456789abcd00", "ffffffffffff1234", "ffffffffffff5678"]


def database(**changes: Any) -> dict[str, Any]:
    train = {"cids": CIDS, "cluster": [30, 30, 4, 4], "qidxs": [0, 3], "pidxs": [1, 2]} | changes
    return {"train": train, "val": {**train, "qidxs": [], "pidxs": []}}


@pytest.fixture
def ims(tmp_path: Path) -> Path:
    folder = tmp_path / "ims"
    touch(
        folder / "ef/cd/ab/0123456789abcdef",
        folder / "00/cd/ab/0123456789abcd00",
        folder / "34/12/ff/ffffffffffff1234",
        folder / "ffffffffffff5678.jpg",
    )
    return folder


def write_pickle(folder: Path, content: Any) -> Path:
    file = folder / "db.pkl"
    file.write_bytes(pickle.dumps(content, protocol=2))
    return file


@pytest.mark.parametrize("positives", [[1, 2], [[1], [2]], [(1,), 2]])
def test_cirtorch_pickles_give_images_clusters_and_pairs(
    tmp_path: Path, ims: Path, positives: list[Any]
) -> None:
    file = write_pickle(tmp_path, database(pidxs=positives, bbxs=[None] * 4))
    data = from_cirtorch_pickle("sfm", file, ims, "train")
    assert data.images[0] == str(ims / "ef/cd/ab/0123456789abcdef")
    assert data.images[3] == str(ims / "ffffffffffff5678.jpg")
    assert data.ids == tuple(CIDS)
    assert data.label_names == ("4", "30")
    assert data.labels.tolist() == [1, 1, 0, 0]
    assert data.pairs is not None
    assert data.pairs.tolist() == [[0, 1], [3, 2]]


def test_a_whitening_file_has_no_splits_and_its_labels_are_what_pairs_connect(
    tmp_path: Path, ims: Path
) -> None:
    flat = {"cids": CIDS, "qidxs": [3, 3], "pidxs": [1, 0]}
    data = from_cirtorch_pickle("sfm", write_pickle(tmp_path, flat), ims, "whiten")
    assert data.pairs is not None
    assert data.pairs.tolist() == [[3, 1], [3, 0]]
    assert data.labels[0] == data.labels[1] == data.labels[3] != data.labels[2]


def test_splits_without_pairs_have_an_empty_list_of_them(tmp_path: Path, ims: Path) -> None:
    data = from_cirtorch_pickle("sfm", write_pickle(tmp_path, database()), ims, "val")
    assert data.pairs is not None
    assert data.pairs.shape == (0, 2)


def test_pairs_of_missing_images_go_too(
    tmp_path: Path, ims: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (ims / "ef/cd/ab/0123456789abcdef").unlink()
    file = write_pickle(tmp_path, database())
    with pytest.raises(ValueError, match=r"1 are \(0123456789abcdef\) missing in .*ims"):
        from_cirtorch_pickle("sfm", file, ims, "train")
    with caplog.at_level(logging.WARNING):
        data = from_cirtorch_pickle("sfm", file, ims, "train", max_missing=0.25)
    assert "0123456789abcdef" in caplog.text
    assert data.pairs is not None
    assert data.pairs.tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], r"db\.pkl is a list, expected a dict with 'train'"),
        ({"val": {}}, r"db\.pkl has 'val', expected 'train'"),
        ({"train": [1]}, r"'train' is a list, expected a dict"),
        ({"train": {"cids": []}}, r"\['train'\] has 'cids', expected 'cluster'"),
        (database(cids="abc"), "'cids' is a str, expected a list"),
        (database(cids=[1, 2, 3, 4]), "cids hold something else than names"),
        (database(cluster=[1, 2]), "2 cluster, expected 4, one per cids"),
        (database(cluster=[1, 2, "a", None]), "cluster holds NoneType, int, str"),
        (database(pidxs=[1]), "1 pidxs, expected 2, one per qidxs"),
        (database(pidxs=[1, 4]), r"\(3, 4\), expected integers from 0 to 3"),
        (database(pidxs=[1, -1]), r"\(3, -1\), expected integers from 0 to 3"),
        (database(qidxs=[0, 1.5]), r"\(1\.5, 2\), expected integers"),
        (database(cids=np.array(CIDS)), r"holds an object of numpy.*nothing of it was executed"),
    ],
)
def test_malformed_pickles_say_what_is_wrong(
    tmp_path: Path, ims: Path, content: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        from_cirtorch_pickle("sfm", write_pickle(tmp_path, content), ims, "train")


def test_missing_pickle_is_named(tmp_path: Path, ims: Path) -> None:
    with pytest.raises(ValueError, match=r"no file .*none\.pkl, expected cirtorch's"):
        from_cirtorch_pickle("sfm", tmp_path / "none.pkl", ims, "train")


def test_builtin_names_need_no_files_until_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETRIEVAL_DATASETS", str(tmp_path / "data"))
    register_builtin()
    register_builtin()
    assert catalog.names() == (
        "landmarks_clean_train",
        "landmarks_clean_val",
        "landmarks_full_train",
        "landmarks_full_val",
        "procedural_start",
        "procedural_test",
        "procedural_train",
        "procedural_val",
        "retrieval-SfM-120k_train",
        "retrieval-SfM-120k_val",
        "retrieval-SfM-120k_whiten",
        "retrieval-SfM-30k_train",
        "retrieval-SfM-30k_val",
        "retrieval-SfM-30k_whiten",
    )
    assert len(catalog.get("procedural_val").images) == 480
    with pytest.raises(
        ValueError,
        match=r"'landmarks_clean_val': no .*data/landmarks_clean/val\.txt and no "
        r".*data/landmarks_full/images, expected .*RETRIEVAL_DATASETS",
    ):
        catalog.get("landmarks_clean_val")
    with pytest.raises(
        ValueError, match=r"no .*data/train/retrieval-SfM-30k/retrieval-SfM-30k.pkl"
    ):
        catalog.get("retrieval-SfM-30k_train")


def test_builtin_layouts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETRIEVAL_DATASETS", str(tmp_path))
    register_builtin()
    touch(tmp_path / "landmarks_full/images/x/1.jpg")
    for name in ("landmarks_full", "landmarks_clean"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "train.txt").write_text("x/1.jpg x\n")
        data = catalog.get(f"{name}_train")
        assert data.images == (str(tmp_path / "landmarks_full/images/x/1.jpg"),)
        assert data.name == f"{name}_train"
    folder = tmp_path / "train" / "retrieval-SfM-30k"
    touch(*(folder / "ims" / c[-2:] / c[-4:-2] / c[-6:-4] / c for c in CIDS))
    write_pickle(folder, database()).rename(folder / "retrieval-SfM-30k.pkl")
    assert len(catalog.get("retrieval-SfM-30k_train").images) == 4
    assert catalog.get("retrieval-SfM-30k_val").name == "retrieval-SfM-30k_val"
    write_pickle(folder, database()["train"]).rename(folder / "retrieval-SfM-30k-whiten.pkl")
    assert len(catalog.get("retrieval-SfM-30k_whiten").images) == 4

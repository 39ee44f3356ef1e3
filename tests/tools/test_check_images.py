"""The command line: which images it looks at, the report, and the exit code."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from tools import check_images


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.jpg", "sub/b.png"):
        Image.new("RGB", (60, 40), "red").save(folder / name)
    (folder / "notes.txt").write_text("no image")
    return folder


def test_readable_folder_gives_0_and_an_empty_report(photos: Path, tmp_path: Path) -> None:
    report = tmp_path / "new" / "report.json"
    assert check_images.run(["--folder", str(photos), "--output", str(report)]) == 0
    assert json.loads(report.read_text()) == []


def test_truncated_image_gives_1_and_its_name(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = photos / "sub" / "cut.JPG"
    Image.effect_noise((60, 40), 50).save(cut, "JPEG")
    cut.write_bytes(cut.read_bytes()[:-30])
    report = tmp_path / "report.json"
    arguments = ["--folder", str(photos), "--output", str(report), "--workers", "2"]
    assert check_images.run(arguments) == 1
    (entry,) = json.loads(report.read_text())
    assert entry["image"] == str(cut)
    assert "truncated" in entry["reason"]
    assert "1 of 3 images cannot be read" in capsys.readouterr().out


def test_listed_images_that_do_not_exist_are_reported(photos: Path, tmp_path: Path) -> None:
    listed, report = tmp_path / "list.csv", tmp_path / "report.json"
    listed.write_text("image,label\na,x\nsub/b,x\nnone,y\na,x\nnone,y\n")
    arguments = ["--list", str(listed), "--image-root", str(photos), "--output", str(report)]
    assert check_images.run(arguments) == 1
    assert json.loads(report.read_text()) == [
        {"image": str(photos / "none"), "reason": "no such file"}
    ]


def test_data_sets_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert check_images.run(["--dataset", "procedural_val", "--output", str(report)]) == 0
    assert "0 of 480 images cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "other"], "unknown data set 'other', expected one of .*procedural_train"),
        (["--folder", "nowhere"], "no folder nowhere"),
        (["--list", "none.csv", "--image-root", "."], "no list file none.csv"),
    ],
)
def test_wrong_input_gives_2_and_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_images.run(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)


@pytest.mark.parametrize(
    "arguments", [[], ["--list", "a.csv"], ["--folder", "a", "--dataset", "b"]]
)
def test_wrong_combinations_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        check_images.run(arguments)

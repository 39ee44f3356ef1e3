"""The scan finds what cannot be read, and data sets go on without it up to a limit."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sl_retrieval.data import RetrievalData
from sl_retrieval.image_scan import (
    Unreadable,
    read_report,
    scan_images,
    without_unreadable,
    write_report,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """150 readable images, and of each kind of damage one."""
    pixels = np.random.default_rng(0).integers(0, 255, (64, 80, 3)).astype(np.uint8)
    image = Image.fromarray(pixels)
    for number in range(150):
        image.save(tmp_path / f"good{number:03}.{'jpg' if number % 2 else 'png'}")
    for name, progressive in (("cut", False), ("progressive", True)):
        file = tmp_path / f"{name}.jpg"
        image.save(file, progressive=progressive)
        file.write_bytes(file.read_bytes()[:-2])
    image.save(tmp_path / "half.png")
    half = (tmp_path / "half.png").read_bytes()
    (tmp_path / "half.png").write_bytes(half[: len(half) // 2])
    (tmp_path / "text.jpg").write_text("404")
    (tmp_path / "empty.jpg").touch()
    return tmp_path


BAD = {
    "cut.jpg": "truncated",
    "progressive.jpg": "truncated",
    "half.png": "truncated",
    "text.jpg": "not an image",
    "empty.jpg": "not an image",
    "none.jpg": "no such file",
}


@pytest.mark.parametrize("workers", [1, 3])
def test_finds_every_kind_of_damage_in_order(folder: Path, workers: int) -> None:
    names = sorted({file.name for file in folder.iterdir()} | {"none.jpg"})
    found = scan_images([str(folder / name) for name in names], workers)
    assert [Path(entry.image).name for entry in found] == sorted(BAD)
    for entry in found:
        assert BAD[Path(entry.image).name] in entry.reason


def test_generated_images_can_be_scanned() -> None:
    found = scan_images(["procedural://val/0/0.png", "procedural://val/99/0.png"], 1)
    assert [entry.image for entry in found] == ["procedural://val/99/0.png"]


def test_no_images_and_no_workers() -> None:
    assert scan_images([], 2) == []
    with pytest.raises(ValueError, match="workers is 0, expected at least 1"):
        scan_images(["a"], 0)


def data() -> RetrievalData:
    images = tuple(f"{i}.jpg" for i in range(200))
    return RetrievalData("mine", images, np.zeros(200, np.int64), ("x",))


def test_unreadable_images_are_left_out_up_to_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report = [Unreadable("3.jpg", "cut"), Unreadable("5.jpg", "gone"), Unreadable("z", "other")]
    less = without_unreadable(data(), report)
    assert set(data().images) - set(less.images) == {"3.jpg", "5.jpg"}
    assert "2 of 200 images cannot be read, such as 3.jpg (cut); they are left out" in caplog.text
    with pytest.raises(ValueError, match=r"3 of 200 .* 3\.jpg \(cut\), expected at most 1\.0%"):
        without_unreadable(data(), [*report, Unreadable("7.jpg", "cut")])
    assert len(without_unreadable(data(), report, limit=1).images) == 198
    assert len(without_unreadable(data(), []).images) == 200


def test_reports_come_back_as_written(tmp_path: Path) -> None:
    report = [Unreadable("ä/3.jpg", "cut"), Unreadable("5.jpg", "gone")]
    write_report(tmp_path / "unreadable.json", report)
    assert read_report(tmp_path / "unreadable.json") == report


@pytest.mark.parametrize("content", ["", "{", '["a.jpg"]', '[{"image": "a.jpg"}]', "3"])
def test_other_files_are_no_reports(tmp_path: Path, content: str) -> None:
    file = tmp_path / "unreadable.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"report .*unreadable\.json cannot be read .*a list of"):
        read_report(file)
    with pytest.raises(ValueError, match=r"no report .*none\.json, expected a list of"):
        read_report(tmp_path / "none.json")

"""Reading images: cirtorch's sizes, boxes, and one clear message for what cannot be read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sl_retrieval.images import load_image, open_image
from sl_retrieval.procedural_landmarks import view_image


def write_image(file: Path, width: int, height: int, **options: Any) -> str:
    across = np.linspace(0, 255, width)[None, :, None]
    down = np.linspace(0, 255, height)[:, None, None]
    pixels = np.concatenate(
        np.broadcast_arrays(across, down, (across + down) / 2),
        axis=2,
        dtype=np.uint8,
        casting="unsafe",
    )
    Image.fromarray(pixels).save(file, **options)
    return str(file)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(None, (200, 100)), (400, (200, 100)), (200, (200, 100)), (50, (50, 25)), (1, (1, 1))],
)
def test_longest_side_is_limited_and_never_upsampled(
    tmp_path: Path, size: int | None, expected: tuple[int, int]
) -> None:
    assert load_image(write_image(tmp_path / "a.png", 200, 100), size).size == expected


def test_a_crop_is_scaled_as_the_whole_image_would_be(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a.png", 200, 100)
    # The whole image would shrink from 200 to 100, so a crop of 80 x 60 becomes 40 x 30.
    assert load_image(path, 100, (20, 10, 100, 70)).size == (40, 30)
    # floor(65 x 51 / 200) = 16
    assert load_image(path, 65, (0, 0, 51, 51)).size == (16, 16)
    assert load_image(path, 400, (20, 10, 100, 70)).size == (80, 60)
    assert load_image(path, 2, (0, 0, 3, 3)).size == (1, 1)


def test_a_box_cuts_out_its_pixels_and_is_black_outside(tmp_path: Path) -> None:
    path = write_image(tmp_path / "a.png", 40, 30)
    whole = np.asarray(load_image(path, None))
    inside = np.asarray(load_image(path, None, (4.4, 2, 20, 11)))
    assert np.array_equal(inside, whole[2:11, 4:20])
    beyond = np.asarray(load_image(path, None, (30, 20, 50, 35)))
    assert beyond.shape == (15, 20, 3)
    assert np.array_equal(beyond[:10, :10], whole[20:, 30:])
    assert not beyond[10:].any()
    assert not beyond[:, 10:].any()


@pytest.mark.parametrize(
    "box", [(5, 5, 5, 9), (9, 5, 5, 9), (40, 0, 50, 10), (-9, -9, 0, 10), (1, 2, 3)]
)
def test_empty_or_outside_boxes_are_refused(tmp_path: Path, box: tuple[float, ...]) -> None:
    path = write_image(tmp_path / "a.png", 40, 30)
    with pytest.raises(ValueError, match=r"a\.png: box is .*expected .*inside 40 x 30"):
        load_image(path, None, box)


def test_every_mode_becomes_rgb_and_exif_orientation_is_ignored(tmp_path: Path) -> None:
    for mode in ("L", "1", "P", "RGBA", "CMYK", "I;16"):
        file = tmp_path / (f"{mode}.tif" if mode == "CMYK" else f"{mode}.png")
        Image.new(mode, (7, 5)).save(file)
        assert open_image(str(file)).mode == "RGB"
    exif = Image.Exif()
    exif[0x0112] = 6  # stands on its side
    assert open_image(write_image(tmp_path / "a.jpg", 40, 20, exif=exif)).size == (40, 20)


@pytest.mark.parametrize("progressive", [False, True])
def test_truncated_jpeg_names_the_file(tmp_path: Path, progressive: bool) -> None:
    file = tmp_path / "cut.jpg"
    write_image(file, 200, 100, progressive=progressive)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cut\.jpg cannot be read: .*truncated"):
        open_image(str(file))


def test_damaged_and_missing_files_name_the_file(tmp_path: Path) -> None:
    text = tmp_path / "text.jpg"
    text.write_text("<html>404</html>")
    with pytest.raises(ValueError, match=r"text\.jpg cannot be read: not an image"):
        open_image(str(text))
    damaged = tmp_path / "damaged.png"
    content = bytearray(Path(write_image(damaged, 60, 60)).read_bytes())
    content[60:90] = bytes(30)
    damaged.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"damaged\.png cannot be read: "):
        open_image(str(damaged))
    with pytest.raises(ValueError, match=r"none\.jpg cannot be read: no such file"):
        open_image(str(tmp_path / "none.jpg"))


def test_a_registered_scheme_opens_like_a_file() -> None:
    image = open_image("procedural://test/3/5.png")
    assert np.array_equal(np.asarray(image), view_image("test", 3, 5))
    assert load_image("procedural://test/3/5.png", 48).size == (48, 48)

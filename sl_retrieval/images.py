"""Images as cirtorch reads them: RGB, EXIF orientation ignored, thumbnails never upsampled."""

import math
from collections.abc import Sequence

from iopath.common.file_io import PathManager
from PIL import Image

from sl_retrieval.procedural_landmarks import ProceduralHandler

PATHS = PathManager()
"""Opens every image. Register an iopath handler here to read from elsewhere."""

# Here, so that every process that reads images has it.
PATHS.register_handler(ProceduralHandler())


def open_image(path: str) -> Image.Image:
    """Decode a whole image to RGB.

    Args:
        path: a file, or an address of a scheme that ``PATHS`` knows, such as procedural://.

    Raises:
        ValueError: there is no such image, or it is damaged or truncated.
    """
    try:
        with PATHS.open(path, "rb") as file:
            return Image.open(file).convert("RGB")
    except Exception as error:  # damaged files make Pillow's decoders raise almost anything
        raise ValueError(f"image {path} cannot be read: {reason(error)}") from error


def load_image(path: str, size: int | None, box: Sequence[float] | None = None) -> Image.Image:
    """Open an image, crop it, and make it smaller where it is too large.

    Args:
        path: as in ``open_image``.
        size: longest side of the result at most, in pixels; smaller images stay as they are.
            None keeps every size. With a box, the crop is scaled as the whole image would be:
            its longest side is at most size x max(crop) / max(image).
        box: (x1, y1, x2, y2) in pixels of the image, rounded to whole pixels. What of it lies
            outside the image is black.

    Raises:
        ValueError: as in ``open_image``; or the box is empty or outside the image.
    """
    image = open_image(path)
    longest = max(image.size)
    if box is not None:
        _check_box(path, image, box)
        image = image.crop((box[0], box[1], box[2], box[3]))
    if size is not None:
        limit = max(1, math.floor(size * max(image.size) / longest)) if box is not None else size
        image.thumbnail((limit, limit), Image.Resampling.LANCZOS)
    return image


def reason(error: Exception) -> str:
    """Why an image cannot be read, without its path."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image"
    return str(error) or type(error).__name__


def _check_box(path: str, image: Image.Image, box: Sequence[float]) -> None:
    expected = f"x1 < x2 and y1 < y2 inside {image.width} x {image.height}"
    if len(box) != 4:
        raise ValueError(f"image {path}: box is {list(box)}, expected four numbers, {expected}")
    x1, y1, x2, y2 = (round(value) for value in box)
    across = min(x2, image.width) - max(x1, 0)
    down = min(y2, image.height) - max(y1, 0)
    if min(across, down) <= 0:
        raise ValueError(f"image {path}: box is {list(box)}, expected {expected}")

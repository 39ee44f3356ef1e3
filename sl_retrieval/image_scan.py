"""Find the images that cannot be read before a training meets them hours later."""

import json
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image
from tqdm import tqdm

from sl_core.json_files import write_json
from sl_retrieval.data import RetrievalData
from sl_retrieval.images import PATHS, reason

_CHUNK = 64  # images that a worker takes at once
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unreadable:
    """An image that cannot be read, and why."""

    image: str
    reason: str


def scan_images(images: Sequence[str], workers: int) -> list[Unreadable]:
    """Decode every image and list those that fail, in order, with a progress bar.

    All data of a file are read, so truncated files are found. JPEGs are decoded at an eighth of
    their size, which is faster and finds the same. Damage that still decodes is not found.

    Args:
        images: paths as in ``images.open_image``.
        workers: threads, at least 1; decoding does not hold Python's lock.
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}, expected at least 1")
    chunks = [images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK)]
    unreadable: list[Unreadable] = []
    with (
        ThreadPoolExecutor(workers) as pool,
        tqdm(total=len(images), unit="image", desc="checking images") as progress,
    ):
        for chunk, found in zip(chunks, pool.map(_scan_chunk, chunks), strict=True):
            unreadable += found
            progress.update(len(chunk))
            progress.set_postfix(unreadable=len(unreadable), refresh=False)
    return unreadable


def write_report(file: Path, unreadable: Iterable[Unreadable]) -> None:
    """Write [{"image": ..., "reason": ...}, ...], atomically."""
    write_json(file, [asdict(entry) for entry in unreadable])


def read_report(file: Path) -> list[Unreadable]:
    """Read what ``write_report`` wrote."""
    expected = 'a list of {"image": ..., "reason": ...}'
    try:
        return [
            Unreadable(str(entry["image"]), str(entry["reason"]))
            for entry in json.loads(file.read_text(encoding="utf-8"))
        ]
    except FileNotFoundError:
        raise ValueError(f"no report {file}, expected {expected}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"report {file} cannot be read ({error}), expected {expected}") from None


def without_unreadable(
    data: RetrievalData, report: Iterable[Unreadable], limit: float = 0.01
) -> RetrievalData:
    """Leave the unreadable images out, with a line in the log.

    Args:
        data: the data set.
        report: from ``scan_images`` or ``read_report``; other images in it have no effect.
        limit: part of the images that may be unreadable, in [0, 1].

    Raises:
        ValueError: more are.
    """
    reasons = {entry.image: entry.reason for entry in report}
    bad = [position for position, image in enumerate(data.images) if image in reasons]
    if not bad:
        return data
    first = data.images[bad[0]]
    message = (
        f"data set {data.name!r}: {len(bad)} of {len(data.images)} images cannot be read, such as "
        f"{first} ({reasons[first]})"
    )
    if len(bad) > limit * len(data.images):
        raise ValueError(f"{message}, expected at most {limit:.1%}")
    logger.warning("%s; they are left out", message)
    return data.without(bad)


def _scan_chunk(images: Sequence[str]) -> list[Unreadable]:
    return [Unreadable(image, why) for image in images if (why := _failure(image)) is not None]


def _failure(image: str) -> str | None:
    """Why an image cannot be read; None if it can."""
    try:
        with PATHS.open(image, "rb") as file, Image.open(file) as picture:
            picture.draft("RGB", (picture.width // 8, picture.height // 8))
            picture.convert("RGB")
    except Exception as error:  # damaged files make Pillow's decoders raise almost anything
        return reason(error)
    return None

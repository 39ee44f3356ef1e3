"""Procedural landmarks: a retrieval data set that needs no files, made of generated facades.

A landmark is a facade, a function of (split, landmark); a view, a function of (split, landmark,
view), sees it from some place, in some light, with sky, ground, neighbours and things in front of
it. The splits are made of different facades. Views are rendered when they are read:
``procedural://train/17/3.png`` opens like a file in ``images.open_image``.
"""

import functools
import io
from typing import Any

import numpy as np
from iopath.common.file_io import PathHandler
from numpy.typing import NDArray
from PIL import Image

from sl_retrieval.data import RetrievalData
from sl_retrieval.procedural_facades import draw_facade
from sl_retrieval.procedural_views import draw_view

# The order numbers the splits' random streams; "start" is for warm-ups, with right labels.
NUM_LANDMARKS = {"train": 240, "val": 40, "test": 60, "start": 240}
NUM_VIEWS = {"train": 20, "val": 12, "test": 12, "start": 20}
PREFIX = "procedural://"


def load_procedural(split: str) -> RetrievalData:
    """All views of a split, in order of landmark and view."""
    landmarks, views = NUM_LANDMARKS[split], NUM_VIEWS[split]
    ids = tuple(f"{split}/{i}/{view}.png" for i in range(landmarks) for view in range(views))
    return RetrievalData(
        name=f"procedural_{split}",
        images=tuple(PREFIX + name for name in ids),
        labels=np.repeat(np.arange(landmarks, dtype=np.int64), views),
        label_names=tuple(f"{split}-{i}" for i in range(landmarks)),
        ids=ids,
    )


class ProceduralHandler(PathHandler):
    """Opens ``procedural://split/landmark/view.png`` as the PNG of that view."""

    def _get_supported_prefixes(self) -> list[str]:
        return [PREFIX]

    def _open(self, path: str, mode: str = "r", buffering: int = -1, **_: Any) -> io.BytesIO:
        split, landmark, view = _parse(path)
        return io.BytesIO(_png(split, landmark, view))


def view_image(split: str, landmark: int, view: int) -> NDArray[np.uint8]:
    """The image of a view: (SIZE, SIZE, 3)."""
    return draw_view(_facade(split, landmark), _generator(split, landmark, 1 + view))


def _parse(path: str) -> tuple[str, int, int]:
    expected = f"{PREFIX}split/landmark/view.png"
    parts = path.removeprefix(PREFIX).removesuffix(".png").split("/")
    if len(parts) != 3 or parts[0] not in NUM_LANDMARKS or not "".join(parts[1:]).isdecimal():
        raise ValueError(f"{path!r} is no view, expected {expected} ({', '.join(NUM_LANDMARKS)})")
    split, landmark, view = parts[0], int(parts[1]), int(parts[2])
    if landmark >= NUM_LANDMARKS[split] or view >= NUM_VIEWS[split]:
        raise ValueError(
            f"{path!r} is no view: {split} has {NUM_LANDMARKS[split]} landmarks of "
            f"{NUM_VIEWS[split]} views, numbered from 0"
        )
    return split, landmark, view


# About 20 kB a view: the cache of a training that reads all views takes 100 MB.
@functools.lru_cache(maxsize=8192)
def _png(split: str, landmark: int, view: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(view_image(split, landmark, view)).save(file, "PNG", compress_level=1)
    return file.getvalue()


@functools.lru_cache(maxsize=512)
def _facade(split: str, landmark: int) -> Image.Image:
    return draw_facade(_generator(split, landmark, 0))


def _generator(split: str, landmark: int, stream: int) -> np.random.Generator:
    # numpy promises the same stream for one version only; views may change slightly with another.
    return np.random.default_rng([list(NUM_LANDMARKS).index(split), landmark, stream])

"""Pictures of queries and what a network finds for them: right in green, wrong in red."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageOps

from sl_retrieval.evaluation import DescribedSet
from sl_retrieval.images import load_image

RIGHT, WRONG, QUERY = (27, 158, 82), (214, 39, 40), (90, 90, 90)
SIDE, FRAME, GAP, HEADER = 112, 5, 8, 24


def top_results(described: DescribedSet, query: int, count: int) -> NDArray[np.int64]:
    """The nearest database images of a query, nearest first, without those that are ignored.

    Junk is left out, as in the metrics; of equal scores the earlier image comes first.
    """
    scores = described.database @ described.queries[query]
    scores[described.relevance[query]["junk"]] = -np.inf
    ranked = np.argsort(-scores, kind="stable")
    ranked = ranked[np.isfinite(scores[ranked])]
    nearest: NDArray[np.int64] = ranked[:count]
    return nearest


def draw_results(described: DescribedSet, queries: Sequence[int], count: int = 8) -> Image.Image:
    """A row for each query: itself, then its nearest images, framed green if right, red if not.

    Args:
        described: the data set.
        queries: which of its queries.
        count: results in a row.
    """
    cell = SIDE + 2 * FRAME + GAP
    width, height = GAP + cell * (count + 1) + 2 * GAP, HEADER + cell * len(queries) + GAP
    page = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(page)
    pen.text((GAP, 7), "query", fill=QUERY)
    pen.text((3 * GAP + cell, 7), "nearest images, nearest first", fill=QUERY)
    for row, query in enumerate(queries):
        top = HEADER + row * cell
        picture = load_image(described.query_files[query], SIDE, described.boxes[query])
        page.paste(_framed(picture, QUERY), (GAP, top))
        lists = described.relevance[query]
        right = np.concatenate([lists[key] for key in lists if key != "junk"])
        for column, image in enumerate(top_results(described, query, count)):
            picture = load_image(described.database_files[image], SIDE)
            colour = RIGHT if image in right else WRONG
            page.paste(_framed(picture, colour), (3 * GAP + cell * (column + 1), top))
    return page


def spread_queries(values: ArrayLike, count: int) -> list[int]:
    """Up to ``count`` positions, evenly from the lowest value to the highest; nan is left out."""
    array = np.asarray(values, dtype=np.float64)
    order = np.argsort(array, kind="stable")[: int((~np.isnan(array)).sum())]
    places = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)
    spread: list[int] = order[places].tolist()
    return spread


def _framed(picture: Image.Image, colour: tuple[int, int, int]) -> Image.Image:
    """The whole picture, as large as fits into SIDE x SIDE, in a frame."""
    fitted = ImageOps.pad(picture, (SIDE, SIDE), color="white")
    return ImageOps.expand(fitted, FRAME, colour)

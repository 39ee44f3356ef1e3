"""Frames of result pictures say what the ground truth says."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sl_retrieval.evaluation import DescribedSet
from sl_retrieval.result_pictures import (
    FRAME,
    GAP,
    HEADER,
    RIGHT,
    SIDE,
    WRONG,
    draw_results,
    spread_queries,
    top_results,
)


@pytest.fixture
def described(tmp_path: Path) -> DescribedSet:
    files = []
    for number, size in enumerate(((40, 30), (30, 40), (200, 100), (8, 8), (9, 9))):
        files.append(str(tmp_path / f"{number}.png"))
        Image.new("RGB", size, "white").save(files[-1])
    angles = np.array([0.0, 0.3, 0.1, 0.2, 0.4])
    database = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return DescribedSet(
        names=("a",),
        query_files=(files[0],),
        boxes=((0, 0, 20, 20),),
        database_files=tuple(files),
        queries=database[:1],
        database=database,
        relevance=[{"easy": np.array([3]), "hard": np.array([4]), "junk": np.array([0])}],
    )


def test_results_are_in_order_of_distance_without_junk(described: DescribedSet) -> None:
    assert top_results(described, 0, 3).tolist() == [2, 3, 1]
    assert top_results(described, 0, 9).tolist() == [2, 3, 1, 4]


def test_right_results_are_framed_green_and_wrong_ones_red(described: DescribedSet) -> None:
    page = draw_results(described, [0], count=4)
    cell = SIDE + 2 * FRAME + GAP
    corners = [(3 * GAP + cell * column + 1, HEADER + 1) for column in range(1, 5)]
    assert [page.getpixel(c) for c in corners] == [WRONG, RIGHT, WRONG, RIGHT]


def test_queries_are_spread_from_the_worst_to_the_best() -> None:
    assert spread_queries([0.5, np.nan, 0.1, 0.9, 0.3, 0.7], 3) == [2, 0, 3]
    assert spread_queries([np.nan, 0.1], 5) == [1]

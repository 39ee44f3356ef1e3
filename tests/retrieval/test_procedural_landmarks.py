"""Generated landmarks: the same everywhere, different from each other, hard for simple colours."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from sl_retrieval.images import open_image
from sl_retrieval.procedural_facades import TEXTURE, draw_facade
from sl_retrieval.procedural_landmarks import (
    NUM_LANDMARKS,
    NUM_VIEWS,
    load_procedural,
    view_image,
)
from sl_retrieval.procedural_views import SIZE, draw_view


def views(split: str, landmarks: int) -> NDArray[np.uint8]:
    """(landmarks x views, SIZE, SIZE, 3)."""
    return np.stack(
        [view_image(split, i, view) for i in range(landmarks) for view in range(NUM_VIEWS[split])]
    )


def test_other_processes_see_the_same_views() -> None:
    code = (
        "import hashlib; from sl_retrieval.procedural_landmarks import view_image; "
        "print(hashlib.sha256(b''.join(view_image('train', i, 3).tobytes() for i in (5, 0))"
        ").hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    own = b"".join(view_image("train", i, 3).tobytes() for i in (5, 0))
    assert other.stdout.strip() == hashlib.sha256(own).hexdigest()


@pytest.mark.parametrize("split", NUM_LANDMARKS)
def test_data_sets_list_every_view_with_its_landmark(split: str) -> None:
    data = load_procedural(split)
    assert len(data.images) == NUM_LANDMARKS[split] * NUM_VIEWS[split]
    assert len(set(data.images)) == len(data.images)
    assert (np.bincount(data.labels) == NUM_VIEWS[split]).all()
    position = NUM_VIEWS[split] + 2
    assert data.images[position] == f"procedural://{split}/1/2.png"
    assert data.ids[position] == f"{split}/1/2.png"
    assert data.labels[position] == 1
    assert open_image(data.images[-1]).size == (SIZE, SIZE)


def test_facades_and_views_are_all_different() -> None:
    facades = [
        draw_facade(np.random.default_rng([split, i, 0])).tobytes()
        for split in range(3)
        for i in range(20)
    ]
    assert len(set(facades)) == 60
    some = np.concatenate([views(split, 3) for split in NUM_LANDMARKS])
    assert len(np.unique(some.reshape(len(some), -1), axis=0)) == len(some)


def test_facades_stand_on_the_ground_inside_their_texture() -> None:
    for seed in range(60):
        left, top, right, bottom = draw_facade(np.random.default_rng(seed)).getbbox() or (0,) * 4
        assert left > 0
        assert right < TEXTURE
        assert top > 0
        assert right - left > TEXTURE / 3
        assert bottom - top > TEXTURE / 3
        assert bottom >= 0.97 * TEXTURE


def test_the_facade_decides_what_a_view_shows() -> None:
    """With the same camera and light, only the facade's own pixels differ."""
    one, other = (draw_facade(np.random.default_rng(seed)) for seed in (1, 2))
    same = draw_view(one, np.random.default_rng(7))
    assert np.array_equal(same, draw_view(one, np.random.default_rng(7)))
    assert not np.array_equal(same, draw_view(other, np.random.default_rng(7)))


def test_colours_alone_do_not_find_the_landmark() -> None:
    """Leave-one-out mAP of colour histograms and of thumbnails; 0.023 is chance.

    With a palette of its own for each facade, histograms would reach 0.087.
    """
    images = views("test", NUM_LANDMARKS["test"])
    labels = np.repeat(np.arange(NUM_LANDMARKS["test"]), NUM_VIEWS["test"])
    codes = (images // 43).astype(np.int64) @ [36, 6, 1]
    histograms = np.stack([np.bincount(code.ravel(), minlength=216) for code in codes])
    cells = images.reshape(len(images), 8, SIZE // 8, 8, SIZE // 8, 3).mean((2, 4))
    thumbnails = cells.reshape(len(images), -1)
    thumbnails = (thumbnails - thumbnails.mean(0)) / thumbnails.std(0)
    assert mean_average_precision(np.sqrt(histograms), labels) < 0.06
    assert mean_average_precision(thumbnails, labels) < 0.06


def mean_average_precision(descriptors: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    unit = descriptors / np.linalg.norm(descriptors, axis=1, keepdims=True)
    scores = unit @ unit.T
    np.fill_diagonal(scores, -np.inf)
    ranked = labels[np.argsort(-scores, axis=1)[:, :-1]] == labels[:, None]
    precision = np.cumsum(ranked, axis=1) / np.arange(1, ranked.shape[1] + 1)
    return float(((precision * ranked).sum(1) / ranked.sum(1)).mean())


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nosplit/1/2.png", "is no view, expected procedural://split/landmark/view.png"),
        ("train/1.png", "is no view, expected"),
        ("train/x/1.png", "is no view, expected"),
        ("train/-1/1.png", "is no view, expected"),
        ("train/240/0.png", "train has 240 landmarks of 20 views"),
        ("test/0/12.png", "test has 60 landmarks of 12 views"),
    ],
)
def test_unknown_views_are_refused(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_image(f"procedural://{path}")

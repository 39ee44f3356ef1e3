"""Small data sets that are made on the spot."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def picture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight landmarks with six pictures each: a pattern of its own, shifted and with noise."""
    root = tmp_path_factory.mktemp("pictures")
    for landmark in range(8):
        generator = np.random.default_rng(landmark)
        pattern = generator.integers(0, 255, (6, 6, 3)).astype(np.uint8)
        folder = root / f"landmark_{landmark}"
        folder.mkdir()
        for view in range(6):
            large = np.asarray(Image.fromarray(pattern).resize((48, 40), Image.Resampling.NEAREST))
            shifted = np.roll(large, tuple(generator.integers(-4, 5, 2)), (0, 1))
            noisy = shifted + generator.normal(0, 12, shifted.shape)
            picture = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
            picture.save(folder / f"{view}.png")
    return root

"""A retrieval data set: images, the landmark that each is said to show, and optional pairs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RetrievalData:
    """Images with labels.

    Attributes:
        name: of the data set.
        images: N paths that ``images.open_image`` can open.
        labels: (N,) the landmark of each image, in [0, len(label_names)). Not every landmark need
            have an image.
        label_names: what the landmarks are called.
        clean_labels: (N,) true labels where they are known, as after artificial noise.
        pairs: (M, 2) fixed (query, positive) positions of images, as cirtorch's files have them.
            None means that pairs are drawn from the labels.
        ids: N names by which the images are known whatever folder they lie in; label noise
            depends on them. Not given, they are the images.
    """

    name: str
    images: tuple[str, ...]
    labels: Labels
    label_names: tuple[str, ...]
    clean_labels: Labels | None = None
    pairs: Labels | None = None
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.images)
        self._require(count > 0, "no images, expected at least one")
        if not self.ids:
            object.__setattr__(self, "ids", self.images)
        self._require(len(self.ids) == count, f"{len(self.ids)} ids, expected {count}")
        for key, labels in (("labels", self.labels), ("clean_labels", self.clean_labels)):
            if labels is not None:
                self._check_indices(key, labels, (count,), len(self.label_names))
        if self.pairs is not None:
            self._check_indices("pairs", self.pairs, (len(self.pairs), 2), count)

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Whether each label is known to be wrong: (N,), all False without ``clean_labels``."""
        if self.clean_labels is None:
            return np.zeros(len(self.images), dtype=bool)
        return np.not_equal(self.labels, self.clean_labels)

    def without(self, indices: Iterable[int]) -> "RetrievalData":
        """The data set without some images; pairs with one of them go too.

        Args:
            indices: positions in [0, N), in any order.
        """
        keep = np.ones(len(self.images), dtype=bool)
        keep[list(indices)] = False
        kept = np.flatnonzero(keep)
        pairs = self.pairs
        if pairs is not None:
            new_position = np.cumsum(keep) - 1
            pairs = new_position[pairs[keep[pairs].all(axis=1)]]
        return replace(
            self,
            images=tuple(self.images[i] for i in kept),
            ids=tuple(self.ids[i] for i in kept),
            labels=self.labels[kept],
            clean_labels=None if self.clean_labels is None else self.clean_labels[kept],
            pairs=pairs,
        )

    def _check_indices(self, key: str, array: Labels, shape: tuple[int, ...], limit: int) -> None:
        found = f"{array.dtype.name} of shape {array.shape}"
        fits = array.dtype == np.int64 and array.shape == shape
        self._require(fits, f"{key} are {found}, expected int64 of shape {shape}")
        if array.size:
            low, high = int(array.min()), int(array.max())
            message = f"{key} are {low} to {high}, expected 0 to {limit - 1}"
            self._require(low >= 0 and high < limit, message)

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise ValueError(f"data set {self.name!r}: {message}")

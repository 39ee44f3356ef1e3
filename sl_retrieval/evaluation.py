"""Evaluation of a network on data sets by name: descriptors, whitening, distractors, metrics."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sl_retrieval import catalog, distributed
from sl_retrieval.extraction import extract_descriptors
from sl_retrieval.ground_truth import GroundTruth, find_ground_truth, image_file, load_ground_truth
from sl_retrieval.network import ImageRetrievalNet
from sl_retrieval.revisited import evaluate_classic, evaluate_revisited, relevance_from_labels
from sl_retrieval.whitening import apply_whitening

Descriptors = NDArray[np.float32]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Extraction:
    """How descriptors are made.

    Attributes:
        size: longest side of an image.
        scales: at which an image is described.
        batch_size: images loaded together.
        workers: processes that load images.
        whitening: (mean (D,), projection (D, D)) that is applied to them; None none.
        dimensions: of the whitened descriptors; None all.
    """

    size: int
    scales: Sequence[float] = (1,)
    batch_size: int = 16
    workers: int = 0
    whitening: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    dimensions: int | None = None

    def describe(
        self,
        network: ImageRetrievalNet,
        images: Sequence[str],
        title: str,
        boxes: Sequence[tuple[float, float, float, float] | None] | None = None,
    ) -> Descriptors:
        """Descriptors (N, d) of images, parts of them if there are boxes."""
        described = extract_descriptors(
            network,
            images,
            size=self.size,
            boxes=boxes,
            scales=self.scales,
            batch_size=self.batch_size,
            workers=self.workers,
            title=title if distributed.rank() == 0 else None,
        ).numpy()
        if self.whitening is None:
            return described
        return np.asarray(
            apply_whitening(described, *self.whitening, self.dimensions), dtype=np.float32
        )


def evaluate_network(
    network: ImageRetrievalNet,
    dataset: str,
    data_root: Path,
    extraction: Extraction,
    distractors: Iterable[Path] = (),
) -> dict[str, Any]:
    """Metrics of one data set.

    Args:
        network: on its device.
        dataset: a name of the catalog, each of whose images is a query against all others; else
            a data set with a ground truth below ``data_root``.
        data_root: folder with <dataset>/gnd_<dataset>.pkl or .json and <dataset>/jpg.
        extraction: how descriptors are made.
        distractors: .npy files of descriptors (n, d), as they come from ``extraction``.

    Returns:
        Protocol to metrics (see ``evaluate_revisited``): easy, medium and hard, or ``all``; its
        ``per_query`` also has ``query``, their names.
    """
    chunks = memory_mapped(distractors)
    if catalog.is_known(dataset):
        data = catalog.get(dataset)
        described = extraction.describe(network, data.images, dataset)
        labels = data.labels if data.clean_labels is None else data.clean_labels
        relevance = relevance_from_labels(labels, labels, np.arange(len(labels)))
        metrics = {"all": evaluate_classic(described, described, relevance, chunks)}
        return _with_names(metrics, data.ids)
    truth = load_ground_truth(find_ground_truth(data_root, dataset))
    queries, database = describe_ground_truth(network, truth, data_root, dataset, extraction)
    if "easy" in truth.relevance[0]:
        metrics = evaluate_revisited(queries, database, truth, chunks)
    else:
        metrics = {"all": evaluate_classic(queries, database, truth, chunks)}
    return _with_names(metrics, truth.queries)


def _with_names(protocols: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {
        protocol: {**metrics, "per_query": {"query": list(names), **metrics["per_query"]}}
        for protocol, metrics in protocols.items()
    }


def describe_ground_truth(
    network: ImageRetrievalNet,
    truth: GroundTruth,
    data_root: Path,
    dataset: str,
    extraction: Extraction,
) -> tuple[Descriptors, Descriptors]:
    """Descriptors of the queries, cut to their boxes, and of the database."""
    queries, images = _files(truth, data_root, dataset)
    return (
        extraction.describe(network, queries, f"{dataset}: queries", truth.boxes),
        extraction.describe(network, images, f"{dataset}: database"),
    )


def check_test_set(dataset: str, data_root: Path) -> None:
    """Raise ValueError if a data set's ground truth, labels or images are not there."""
    if catalog.is_known(dataset):
        catalog.get(dataset)
    else:
        _files(load_ground_truth(find_ground_truth(data_root, dataset)), data_root, dataset)


def _files(truth: GroundTruth, data_root: Path, dataset: str) -> tuple[list[str], list[str]]:
    """Paths of the queries and of the database, all of which exist."""
    queries = [str(image_file(data_root, dataset, name)) for name in truth.queries]
    images = [str(image_file(data_root, dataset, name)) for name in truth.images]
    missing = [path for path in (*queries, *images) if not Path(path).exists()]
    if missing:
        raise ValueError(
            f"{dataset}: {len(missing)} of {len(queries) + len(images)} images are missing, such "
            f"as {missing[0]}"
        )
    return queries, images


def memory_mapped(files: Iterable[Path]) -> Iterator[NDArray[Any]]:
    """Arrays of .npy files, one after the other, without reading them into memory."""
    for file in files:
        try:
            yield np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"{file}: {error}; expected a .npy file of descriptors") from None

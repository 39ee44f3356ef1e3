"""Evaluation of a network on data sets by name: descriptors, whitening, distractors, metrics."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sl_retrieval import catalog, distributed
from sl_retrieval.extraction import Box, extract_descriptors
from sl_retrieval.ground_truth import (
    GroundTruth,
    Relevance,
    find_ground_truth,
    image_file,
    load_ground_truth,
)
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
        boxes: Sequence[Box | None] | None = None,
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


@dataclass(frozen=True, eq=False)
class DescribedSet:
    """A data set with its descriptors: all that a ranking needs.

    Attributes:
        names: Q names of the queries.
        query_files: Q paths.
        boxes: what is cut out of each query; None the whole image.
        database_files: N paths.
        queries: (Q, D) descriptors.
        database: (N, D) descriptors.
        relevance: per query, positions in the database: easy, hard, junk or ok, junk.
    """

    names: tuple[str, ...]
    query_files: tuple[str, ...]
    boxes: tuple[Box | None, ...]
    database_files: tuple[str, ...]
    queries: Descriptors
    database: Descriptors
    relevance: Sequence[Relevance]


def evaluate_network(
    network: ImageRetrievalNet,
    dataset: str,
    data_root: Path,
    extraction: Extraction,
    distractors: Iterable[Path] = (),
) -> dict[str, Any]:
    """Metrics of one data set: ``describe_set``, then ``evaluate_set``."""
    return evaluate_set(describe_set(network, dataset, data_root, extraction), distractors)


def describe_set(
    network: ImageRetrievalNet, dataset: str, data_root: Path, extraction: Extraction
) -> DescribedSet:
    """Descriptors of one data set.

    Args:
        network: on its device.
        dataset: a name of the catalog, each of whose images is a query against all others; else
            a data set with a ground truth below ``data_root``.
        data_root: folder with <dataset>/gnd_<dataset>.pkl or .json and <dataset>/jpg.
        extraction: how descriptors are made.
    """
    if catalog.is_known(dataset):
        data = catalog.get(dataset)
        described = extraction.describe(network, data.images, dataset)
        labels = data.labels if data.clean_labels is None else data.clean_labels
        relevance = relevance_from_labels(labels, labels, np.arange(len(labels)))
        whole = (None,) * len(labels)
        files = data.images
        return DescribedSet(data.ids, files, whole, files, described, described, relevance)
    truth = load_ground_truth(find_ground_truth(data_root, dataset))
    query_files, database_files = _files(truth, data_root, dataset)
    queries = extraction.describe(network, query_files, f"{dataset}: queries", truth.boxes)
    database = extraction.describe(network, database_files, f"{dataset}: database")
    return DescribedSet(
        truth.queries,
        tuple(query_files),
        truth.boxes,
        tuple(database_files),
        queries,
        database,
        truth.relevance,
    )


def evaluate_set(described: DescribedSet, distractors: Iterable[Path] = ()) -> dict[str, Any]:
    """Metrics of a data set, exact.

    Args:
        described: the data set.
        distractors: .npy files of descriptors (n, D), made as the data set's.

    Returns:
        Protocol to metrics (see ``evaluate_revisited``): easy, medium and hard, or ``all``; its
        ``per_query`` also has ``query``, their names.
    """
    inputs = (described.queries, described.database, described.relevance)
    chunks = memory_mapped(distractors)
    protocols: Mapping[str, Any] = (
        evaluate_revisited(*inputs, chunks)
        if "easy" in described.relevance[0]
        else {"all": evaluate_classic(*inputs, chunks)}
    )
    return {
        protocol: {**metrics, "per_query": {"query": described.names, **metrics["per_query"]}}
        for protocol, metrics in protocols.items()
    }


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

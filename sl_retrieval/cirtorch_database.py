"""cirtorch's training databases: pickles of image names, clusters and (query, positive) pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sl_retrieval.data import Labels
from sl_retrieval.safe_pickle import load_plain_pickle


@dataclass(frozen=True, eq=False)
class CirtorchDatabase:
    """One split of a database.

    Attributes:
        cids: N image names.
        labels: (N,) the cluster of each image, in [0, len(label_names)).
        label_names: the clusters as the file calls them, sorted.
        pairs: (M, 2) positions in ``cids`` of queries and their positives.
    """

    cids: tuple[str, ...]
    labels: Labels
    label_names: tuple[str, ...]
    pairs: Labels


# The split of a file without splits, such as retrieval-SfM-120k-whiten.pkl.
WHITEN = "whiten"


def read_database(file: Path, split: str) -> CirtorchDatabase:
    """Read one split of {'train': {...}, 'val': {...}}; nothing in the file is executed.

    A split has ``cids`` (N names), ``cluster`` (N integers or strings), ``qidxs`` and ``pidxs`` (M
    positions in ``cids`` each). As in SOLAR's files, entries of ``pidxs`` may be lists: each of
    their elements makes a pair. The split WHITEN is the whole file, which has no ``cluster``;
    images that pairs connect have one label there.

    Raises:
        ValueError: the file is missing, or has another form.
    """
    if not file.is_file():
        raise ValueError(f"no file {file}, expected cirtorch's training database, a pickle")
    database, where = load_plain_pickle(file), str(file)
    if split != WHITEN:
        database, where = _entry(database, split, Mapping, where), f"{file}[{split!r}]"
    keys = ("cids", "qidxs", "pidxs") if split == WHITEN else ("cids", "cluster", "qidxs", "pidxs")
    lists = {key: _entry(database, key, Sequence, where) for key in keys}
    cids, queries, positives = (lists[key] for key in ("cids", "qidxs", "pidxs"))
    _check_lengths("pidxs", positives, "qidxs", queries, where)
    if not all(isinstance(cid, str) and cid for cid in cids):
        raise ValueError(f"{where}: cids hold something else than names, expected strings")
    pairs = _pairs(queries, positives, len(cids), where)
    cluster = _connected(pairs, len(cids)) if split == WHITEN else lists["cluster"]
    _check_lengths("cluster", cluster, "cids", cids, where)
    label_names, labels = _labels(cluster, where)
    return CirtorchDatabase(tuple(cids), labels, label_names, pairs)


def _check_lengths(
    key: str, values: Sequence[Any], other: str, others: Sequence[Any], where: str
) -> None:
    if len(values) != len(others):
        raise ValueError(f"{where}: {len(values)} {key}, expected {len(others)}, one per {other}")


def _connected(pairs: Labels, count: int) -> list[int]:
    """A number for each image, the same for those that are connected by pairs."""
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    numbers: list[int] = connected_components(graph, directed=False)[1].tolist()
    return numbers


def _entry(content: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(content, Mapping):
        raise ValueError(f"{where} is a {type(content).__name__}, expected a dict with {key!r}")
    if key not in content:
        found = ", ".join(repr(known) for known in content) or "nothing"
        raise ValueError(f"{where} has {found}, expected {key!r} among them")
    value = content[key]
    if not isinstance(value, kind) or isinstance(value, str):
        expected = "dict" if kind is Mapping else "list"
        raise ValueError(f"{where}: {key!r} is a {type(value).__name__}, expected a {expected}")
    return value


def _labels(cluster: Sequence[Any], where: str) -> tuple[tuple[str, ...], Labels]:
    kinds = {type(value) for value in cluster}
    if kinds not in ({int}, {str}):
        found = ", ".join(sorted(kind.__name__ for kind in kinds)) or "nothing"
        raise ValueError(f"{where}: cluster holds {found}, expected integers or strings")
    label_names, labels = np.unique(cluster, return_inverse=True)
    return tuple(str(label) for label in label_names), labels.astype(np.int64)


def _pairs(queries: Sequence[Any], positives: Sequence[Any], count: int, where: str) -> Labels:
    pairs = [
        (query, positive)
        for query, entry in zip(queries, positives, strict=True)
        for positive in (entry if isinstance(entry, list | tuple) else (entry,))
    ]
    for pair in pairs:
        if not all(type(index) is int and 0 <= index < count for index in pair):
            raise ValueError(
                f"{where}: qidxs and pidxs hold {pair}, expected integers from 0 to {count - 1}"
            )
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)

"""Whitening of descriptors, learned from matching pairs or from the descriptors alone.

Descriptors are rows (N, D), and a whitening is a mean (D,) and a projection (D, D) whose rows are
sorted by importance: keep the first d of them to reduce the dimension. cirtorch's m is the mean
as a (D, 1) column and its P is the projection.

If the covariance to be inverted is singular (fewer independent pairs than dimensions), then the
directions that it does not know are given the smallest variance that it does know. So the
projection is always real, finite, square and of full rank, and equal to cirtorch's, up to the
signs of its rows, where cirtorch's is defined. Everything is learned in float64.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sl_core.checks import require
from sl_retrieval.blocks import Descriptors, Rows, blocks_of, check_descriptors, rows_of

_BLOCK = 8192
_NORM_EPS = 1e-6  # added to the norm, as cirtorch does, so that a zero vector stays zero


def learn_whitening(
    descriptors: Descriptors, query_indices: ArrayLike, positive_indices: ArrayLike
) -> tuple[Rows, Rows]:
    """Discriminative whitening: matching pairs differ by the identity covariance.

    With m the mean of the queries q and S the mean of (q - p)(q - p)^T over the pairs, P is the
    matrix with P S P^T = I and P (X - m)^T (X - m) P^T diagonal and descending, X all descriptors.

    Args:
        descriptors: (N, D).
        query_indices: (pairs,) rows of the queries; a row may occur several times.
        positive_indices: (pairs,) rows of the matching images.

    Returns:
        The mean (D,) and the projection (D, D).
    """
    count, _ = check_descriptors("descriptors", descriptors)
    queries = _row_numbers("query_indices", query_indices, count)
    positives = _row_numbers("positive_indices", positive_indices, count)
    found = f"{len(positives)} for {len(queries)} queries"
    require(len(queries) == len(positives), "number of positives", found, "one per query")
    mean = np.zeros(descriptors.shape[1])
    within = np.zeros((len(mean), len(mean)))
    for start in range(0, len(queries), _BLOCK):
        here = slice(start, start + _BLOCK)
        rows = rows_of(descriptors, queries[here])
        mean += rows.sum(axis=0) / len(queries)
        difference = rows - rows_of(descriptors, positives[here])
        within += difference.T @ difference / len(queries)
    whitener = _whitener(within, "pairs")
    scatter = whitener @ _scatter(descriptors, mean) @ whitener.T
    _, vectors = np.linalg.eigh((scatter + scatter.T) / 2)
    return mean, vectors[:, ::-1].T @ whitener


def learn_pca_whitening(descriptors: Descriptors) -> tuple[Rows, Rows]:
    """PCA whitening: projected, the descriptors (N, D) have the identity covariance.

    Returns:
        The mean (D,) and the projection (D, D), rows by descending variance.
    """
    count, dimensions = check_descriptors("descriptors", descriptors)
    require(count > 0, "number of descriptors", count, "at least 1")
    mean = np.zeros(dimensions)
    for _, rows in blocks_of(descriptors, _BLOCK):
        mean += rows.sum(axis=0) / count
    return mean, _whitener(_scatter(descriptors, mean) / count, "descriptors")


def apply_whitening(
    descriptors: Descriptors, mean: ArrayLike, projection: ArrayLike, dimensions: int | None = None
) -> NDArray[np.floating]:
    """Project and normalise: y = P (x - m), y / (|y| + 1e-6), with the first rows of P only.

    Args:
        descriptors: (N, D).
        mean: (D,), or cirtorch's (D, 1).
        projection: (K, D).
        dimensions: how many of the K rows to use, from 1 to K; None for all.

    Returns:
        (N, dimensions), float64 if the descriptors are, else float32.
    """
    centre, matrix = _checked(mean, projection)
    kept = len(matrix) if dimensions is None else dimensions
    require(1 <= kept <= len(matrix), "dimensions", dimensions, f"1 to {len(matrix)}")
    count, _ = check_descriptors("descriptors", descriptors, matrix.shape[1])
    is_double = str(descriptors.dtype).endswith("float64")
    whitened = np.empty((count, kept), np.float64 if is_double else np.float32)
    for start, rows in blocks_of(descriptors, _BLOCK):
        projected = (rows - centre) @ matrix[:kept].T
        projected /= np.linalg.norm(projected, axis=1, keepdims=True) + _NORM_EPS
        whitened[start : start + len(rows)] = projected
    return whitened


def whitening_layer(mean: ArrayLike, projection: ArrayLike) -> tuple[Rows, Rows]:
    """Weight P (K, D) and bias -P m (K,) of the linear layer that does the same."""
    centre, matrix = _checked(mean, projection)
    return matrix, -matrix @ centre


def _whitener(covariance: Rows, of_what: str) -> Rows:
    """W with W C W^T = I, rows by descending variance; see above for a singular C."""
    finite = bool(np.isfinite(covariance).all())
    require(finite, f"covariance of the {of_what}", "not finite", "finite descriptors")
    variances, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    known = variances > variances[-1] * len(variances) * np.finfo(np.float64).eps
    require(
        bool(variances[-1] > 0), f"covariance of the {of_what}", "zero", f"{of_what} that differ"
    )
    deviations = np.sqrt(np.maximum(variances, variances[known][0]))
    whitener: Rows = (vectors / deviations).T[::-1]
    return whitener


def _scatter(descriptors: Descriptors, mean: Rows) -> Rows:
    """(X - m)^T (X - m), (D, D)."""
    total = np.zeros((len(mean), len(mean)))
    for _, rows in blocks_of(descriptors, _BLOCK):
        rows = rows - mean
        total += rows.T @ rows
    return total


def _row_numbers(name: str, values: ArrayLike, count: int) -> NDArray[np.int64]:
    array = np.asarray(values)
    is_list = array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu"
    require(is_list, name, f"{array.dtype.name} of shape {array.shape}", "one or more integers")
    found = f"{array.min()} to {array.max()}"
    in_range = array.min() >= 0 and array.max() < count
    require(bool(in_range), f"range of {name}", found, f"0 to {count - 1}")
    return array.astype(np.int64)


def _checked(mean: ArrayLike, projection: ArrayLike) -> tuple[Rows, Rows]:
    centre = np.asarray(mean, np.float64).reshape(-1)
    matrix = np.asarray(projection, np.float64)
    fits = matrix.ndim == 2 and matrix.shape[1] == len(centre)
    require(fits, "shape of projection", matrix.shape, f"(K, {len(centre)}), as the mean has")
    return centre, matrix

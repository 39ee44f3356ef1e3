"""Whitening: the laws that define it, and finite results for every rank."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sl_retrieval.whitening import (
    apply_whitening,
    learn_pca_whitening,
    learn_whitening,
    whitening_layer,
)

Matrix = NDArray[np.float64]
Rows = NDArray[np.int64]
SEEDS = st.integers(0, 2**32 - 1)


def correlated(seed: int, count: int, dimensions: int) -> Matrix:
    generator = np.random.default_rng(seed)
    mixing = generator.normal(size=(dimensions, dimensions)) + np.eye(dimensions)
    return generator.normal(size=(count, dimensions)) @ mixing + generator.normal(size=dimensions)


def pairs_of(count: int, pairs: int) -> tuple[Rows, Rows]:
    queries = np.arange(pairs) * 7 % count
    return queries, (queries + 1 + np.arange(pairs) % 3) % count


def by_cholesky(x: Matrix, queries: Rows, positives: Rows) -> tuple[Matrix, Matrix]:
    """The definition for full rank: Cholesky of the pairs' covariance, then a rotation."""
    mean = x[queries].mean(axis=0)
    difference = x[queries] - x[positives]
    factor = np.linalg.cholesky(difference.T @ difference / len(difference))
    decorrelated = np.linalg.solve(factor, (x - mean).T)
    values, vectors = np.linalg.eigh(decorrelated @ decorrelated.T)
    return mean, vectors[:, np.argsort(-values)].T @ np.linalg.inv(factor)


@given(SEEDS)
def test_matching_pairs_differ_by_the_identity_covariance(seed: int) -> None:
    x = correlated(seed, 60, 6)
    queries, positives = pairs_of(60, 60)
    mean, projection = learn_whitening(x, queries, positives)
    difference = (x[queries] - x[positives]) @ projection.T
    np.testing.assert_allclose(difference.T @ difference / 60, np.eye(6), atol=1e-7)
    np.testing.assert_allclose(mean, x[queries].mean(axis=0))


@given(SEEDS)
def test_rows_are_decorrelated_and_sorted_by_variance(seed: int) -> None:
    x = correlated(seed, 60, 6)
    mean, projection = learn_whitening(x, *pairs_of(60, 40))
    scatter = projection @ (x - mean).T @ (x - mean) @ projection.T
    variances = np.diag(scatter)
    np.testing.assert_allclose(scatter, np.diag(variances), atol=1e-7 * variances[0])
    assert (np.diff(variances) <= 0).all()


def test_equals_inverse_cholesky_and_rotation_up_to_signs() -> None:
    x = correlated(0, 300, 12)
    queries, positives = pairs_of(300, 200)
    mean, projection = learn_whitening(x, queries, positives)
    expected_mean, expected = by_cholesky(x, queries, positives)
    signs = np.sign((projection * expected).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(mean, expected_mean)
    np.testing.assert_allclose(projection * signs, expected, rtol=1e-7, atol=1e-9)


@given(SEEDS)
def test_pca_whitened_descriptors_have_the_identity_covariance(seed: int) -> None:
    x = correlated(seed, 50, 5)
    mean, projection = learn_pca_whitening(x)
    projected = (x - mean) @ projection.T
    np.testing.assert_allclose(projected.T @ projected / 50, np.eye(5), atol=1e-7)
    assert (np.diff(np.linalg.norm(projection, axis=1)) >= 0).all()


@given(SEEDS, st.integers(1, 11))
def test_fewer_pairs_than_dimensions_give_a_finite_square_projection(seed: int, rank: int) -> None:
    x = correlated(seed, 40, 12)
    queries, positives = pairs_of(40, rank)
    for mean, projection in (
        learn_whitening(x, queries, positives),
        learn_pca_whitening(x[: rank + 1]),
    ):
        assert projection.shape == (12, 12)
        assert projection.dtype == mean.dtype == np.float64
        assert np.isfinite(projection).all()
        assert np.linalg.matrix_rank(projection) == 12


def test_unknown_directions_get_the_smallest_known_variance() -> None:
    x = np.zeros((4, 3))
    x[0, 0], x[2, 1] = 4.0, 2.0
    _, projection = learn_whitening(x, [0, 2], [1, 3])
    np.testing.assert_allclose(
        np.linalg.inv(projection.T @ projection), np.diag([8.0, 2.0, 2.0]), atol=1e-12
    )


def test_many_blocks_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    x = correlated(1, 50, 4)
    queries, positives = pairs_of(50, 30)
    whole = (*learn_whitening(x, queries, positives), *learn_pca_whitening(x))
    applied = apply_whitening(x, *whole[:2])
    monkeypatch.setattr("sl_retrieval.whitening._BLOCK", 7)
    parts = (*learn_whitening(x, queries, positives), *learn_pca_whitening(x))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(np.abs(other), np.abs(one), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(apply_whitening(x, *whole[:2]), applied, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_applied_is_projected_and_divided_by_the_norm_plus_1e_6(dtype: torch.dtype) -> None:
    x = torch.from_numpy(correlated(2, 20, 4)).to(dtype)
    mean, projection = np.arange(4.0), correlated(3, 3, 4)
    expected = (x.double().numpy() - mean) @ projection[:2].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True) + 1e-6
    found = apply_whitening(x, mean[:, None], projection, 2)
    assert found.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_mean_itself_becomes_zero_not_nan() -> None:
    mean, projection = np.arange(4.0), np.eye(4)
    assert not apply_whitening(mean[None], mean, projection).any()


def test_the_layer_does_the_same() -> None:
    x = correlated(4, 30, 5)
    mean, projection = learn_pca_whitening(x)
    weight, bias = (torch.from_numpy(a.copy()) for a in whitening_layer(mean[:, None], projection))
    layer = torch.nn.functional.linear(torch.from_numpy(x), weight, bias)
    normalised = layer / (layer.norm(dim=1, keepdim=True) + 1e-6)
    np.testing.assert_allclose(apply_whitening(x, mean, projection), normalised, rtol=1e-9)


@pytest.mark.parametrize(
    ("queries", "positives", "message"),
    [
        ([0, 1], [1], "number of positives is '1 for 2 queries'"),
        ([0, 9], [1, 2], "range of query_indices is '0 to 9', expected 0 to 4"),
        ([0, 1], [-1, 2], "range of positive_indices"),
        ([], [], "query_indices"),
        ([0.5], [1], "query_indices"),
        ([1], [1], "pairs is 'zero'"),
    ],
)
def test_pairs_that_do_not_fit_are_named(
    queries: list[float], positives: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        learn_whitening(correlated(5, 5, 3), queries, positives)


def test_descriptors_that_do_not_fit_are_named() -> None:
    x = correlated(6, 5, 3)
    with pytest.raises(ValueError, match="has 3 dimensions, expected 2"):
        apply_whitening(x, [0.0, 0.0], np.eye(2))
    with pytest.raises(ValueError, match="shape of projection"):
        apply_whitening(x, np.zeros(3), np.eye(2))
    with pytest.raises(ValueError, match="dimensions is 4, expected 1 to 3"):
        apply_whitening(x, np.zeros(3), np.eye(3), 4)
    with pytest.raises(ValueError, match="N x D"):
        learn_pca_whitening(x[0])
    with pytest.raises(ValueError, match="not finite"):
        learn_pca_whitening(np.array([[1.0, np.nan], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="zero"):
        learn_pca_whitening(x[:1])

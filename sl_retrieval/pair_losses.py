"""Contrastive and triplet losses per pair and per triplet, in cirtorch's layout.

Descriptors are columns of x (D x N), packed tuple by tuple: query, then its positives and
negatives. ``label`` (N,) says which is which: -1 query, 1 positive, 0 negative. All tuples of a
call have the same length S; no tuple at all gives no loss.
"""

import torch
from torch import Tensor

EPS = 1e-6


def contrastive_losses(x: Tensor, label: Tensor, margin: float = 0.7) -> tuple[Tensor, Tensor]:
    """One loss for every pair of a query with another image of its tuple.

    With d = |q - i + eps|, the Euclidean distance: d^2 / 2 for a positive i, and
    max(margin - d, 0)^2 / 2 for a negative. On unit vectors a positive pair has at most 2, a
    negative one at most margin^2 / 2. The sum is cirtorch's contrastive loss.

    Args:
        x: (D, N) descriptors.
        label: (N,) with -1, 1 and 0.
        margin: above 0.

    Returns:
        The losses (P,) of the P = N - N / S pairs in the order of x, and which of them are
        positive (P,), bool.
    """
    tuples, is_positive = _tuples(x, label)
    distance = (tuples[:, :1] - tuples[:, 1:] + EPS).square().sum(2).sqrt()
    pull = distance.square() / 2
    push = (margin - distance).clamp(min=0).square() / 2
    return torch.where(is_positive, pull, push).flatten(), is_positive.flatten()


def triplet_losses(x: Tensor, label: Tensor, margin: float = 0.1) -> Tensor:
    """One loss for every (query, positive, negative) of a tuple, in the order of x.

    max(|q - p|^2 - |q - n|^2 + margin, 0); at most 4 + margin on unit vectors. The sum is
    cirtorch's triplet loss. Every tuple needs exactly one positive.

    Args:
        x: (D, N) descriptors.
        label: (N,) with -1, 1 and 0.
        margin: at least 0.

    Returns:
        Losses (T,).
    """
    tuples, is_positive = _tuples(x, label)
    if not bool((is_positive.sum(1) == 1).all()):
        raise ValueError("label has tuples without exactly one positive, which triplets need")
    squared = (tuples[:, :1] - tuples[:, 1:]).square().sum(2)
    near = squared[is_positive][:, None]
    far = squared[~is_positive].reshape(len(squared), max(squared.shape[1] - 1, 0))
    return (near - far + margin).clamp(min=0).flatten()


def _tuples(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Descriptors as (tuples, S, D), and which of the S - 1 partners are positive."""
    if x.ndim != 2 or label.shape != x.shape[1:]:
        found = f"{tuple(x.shape)} and {tuple(label.shape)}"
        raise ValueError(f"x and label have shapes {found}, expected (D, N) and (N,)")
    is_query = label == -1
    queries = int(is_query.sum())
    if not len(label):
        return x.T.reshape(0, 1, len(x)), is_query.reshape(0, 0)
    length = len(label) // max(queries, 1)
    if queries == 0 or len(label) % queries or not bool(is_query[::length].all()):
        found = f"{queries} queries among {len(label)} labels"
        raise ValueError(
            f"label has {found}, expected tuples of equal length, each with its query (-1) first"
        )
    partners = label.reshape(queries, length)[:, 1:]
    return x.T.reshape(queries, length, -1), partners == 1

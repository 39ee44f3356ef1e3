"""Label noise that is the same everywhere: exact counts, nested rates, no random generator.

Samples are ordered by a hash of (seed, id), and the first round(rate x N) of them get a wrong
label, which is a hash of the same. So the noise of a sample depends on nothing but the seed and
its own id: not on the machine, the numpy version or the order of the data set; and for one seed
the 20 % set lies inside the 40 % set, with the same wrong labels. (Only how many are taken depends
on N.)

The hash is SplitMix64's finaliser, folded over the id's columns; strings enter by the first
eight bytes of their BLAKE2b digest.
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sl_core.checks import require

Labels = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Ids = ArrayLike | Sequence[str] | tuple[ArrayLike | Sequence[str], ...]

_ORDER, _TARGET, _PAIR = 0, 1, 2  # separate streams of the same seed


def symmetric(
    labels: ArrayLike, num_classes: int, rate: float, seed: int, ids: Ids | None = None
) -> Labels:
    """Give exactly round(rate x N) samples another class, uniform over the others.

    Args:
        labels: (N,) integers in [0, num_classes).
        num_classes: at least 2.
        rate: in [0, 1].
        seed: any integer.
        ids: what identifies each sample: (N,) integers or strings, or a tuple of such columns,
            such as (image ids, index of the instance in its image). None means the position.

    Returns:
        New labels (N,); the argument is not changed.
    """
    require(num_classes >= 2, "num_classes", num_classes, "at least 2")
    noisy = _copied_labels(labels, num_classes)
    columns = _id_columns(len(noisy), ids)
    chosen = _first(_hash(seed, _ORDER, columns), rate)
    drawn = _uniform_integers(_hash(seed, _TARGET, columns)[chosen], num_classes - 1)
    noisy[chosen] = drawn + (drawn >= noisy[chosen])
    return noisy


def symmetric_keep(
    labels: ArrayLike, num_classes: int, rate: float, seed: int, ids: Ids | None = None
) -> Labels:
    """Redraw exactly round(rate x N) labels, uniform over all classes, the own one included.

    On average rate x (1 - 1 / num_classes) of the labels are wrong afterwards. Arguments as in
    ``symmetric``.
    """
    noisy = _copied_labels(labels, num_classes)
    columns = _id_columns(len(noisy), ids)
    chosen = _first(_hash(seed, _ORDER, columns), rate)
    noisy[chosen] = _uniform_integers(_hash(seed, _TARGET, columns)[chosen], num_classes)
    return noisy


def asymmetric(
    labels: ArrayLike,
    class_map: Mapping[int, int | Sequence[int]],
    rate: float,
    seed: int,
    ids: Ids | None = None,
) -> Labels:
    """Change exactly round(rate x M) of the M samples whose class has an entry in ``class_map``.

    Args:
        labels: (N,) integers.
        class_map: class to the class it is mistaken for, or to several, one of which is drawn
            uniformly. Classes without an entry stay as they are. ``within_groups`` and
            ``swapped_pairs`` make the maps of the papers.
        rate: in [0, 1].
        seed: any integer.
        ids: as in ``symmetric``.

    Returns:
        New labels (N,); the argument is not changed.
    """
    noisy = _copied_labels(labels)
    targets = {source: np.atleast_1d(target) for source, target in class_map.items()}
    for source, possible in targets.items():
        is_mistake = possible.size > 0 and source not in possible
        require(is_mistake, f"class_map[{source}]", class_map[source], "one or more other classes")
    columns = _id_columns(len(noisy), ids)
    mapped = np.flatnonzero(np.isin(noisy, list(targets)))
    chosen = mapped[_first(_hash(seed, _ORDER, columns)[mapped], rate)]
    sources, drawn = noisy[chosen], _hash(seed, _TARGET, columns)[chosen]
    for source, possible in targets.items():
        here = sources == source
        noisy[chosen[here]] = possible[_uniform_integers(drawn[here], possible.size)]
    return noisy


def within_groups(group_of_class: Sequence[int]) -> dict[int, list[int]]:
    """Map each class to the others of its group (gradient_rescaling.txt, appendix D).

    Args:
        group_of_class: the coarse class of every fine class, such as CIFAR-100's 20.
    """
    return {
        fine: [other for other, g in enumerate(group_of_class) if g == group and other != fine]
        for fine, group in enumerate(group_of_class)
        if list(group_of_class).count(group) > 1
    }


def swapped_pairs(group_of_class: Sequence[int], seed: int) -> dict[int, int]:
    """Map two classes of each group, drawn by the seed, to each other (imae.txt, section 5.1)."""
    classes = np.arange(len(group_of_class))
    order = _hash(seed, _PAIR, _id_columns(len(classes), None))
    pairs: dict[int, int] = {}
    for group in sorted(set(group_of_class)):
        members = classes[np.asarray(group_of_class) == group]
        if len(members) > 1:
            first, second = (int(c) for c in members[np.argsort(order[members])[:2]])
            pairs |= {first: second, second: first}
    return pairs


def regression(
    targets: ArrayLike,
    low: float,
    high: float,
    rate: float,
    seed: int,
    ids: Ids | None = None,
) -> NDArray[np.float64]:
    """Replace exactly round(rate x N) regression targets by uniform draws from [low, high).

    Args:
        targets: (N,) numbers.
        low: lower end of the range of wrong targets.
        high: upper end, at least ``low``.
        rate: in [0, 1].
        seed: any integer.
        ids: as in ``symmetric``.

    Returns:
        New targets (N,) in float64; the argument is not changed.
    """
    noisy = np.array(targets, dtype=np.float64)
    require(noisy.ndim == 1, "shape of targets", noisy.shape, "(N,)")
    require(low <= high, "(low, high)", (low, high), "low <= high")
    columns = _id_columns(len(noisy), ids)
    chosen = _first(_hash(seed, _ORDER, columns), rate)
    # The upper 53 bits are the fraction of a double, so the draw is exact on every machine.
    fraction = (_hash(seed, _TARGET, columns)[chosen] >> np.uint64(11)) * 2.0**-53
    noisy[chosen] = low + (high - low) * fraction
    return noisy


def selected(count: int, rate: float, seed: int, ids: Ids | None = None) -> NDArray[np.intp]:
    """Positions of the samples that get noise: round(rate x count) of them, in hashed order."""
    return _first(_hash(seed, _ORDER, _id_columns(count, ids)), rate)


def digest(labels: ArrayLike) -> str:
    """SHA-256 of labels (integers or floats) in order: two equal digests, the same noise."""
    array = np.asarray(labels)
    plain = "<i8" if array.dtype.kind in "iub" else "<f8"
    return hashlib.sha256(np.ascontiguousarray(array, dtype=plain).tobytes()).hexdigest()


def _first(order: Hashes, rate: float) -> NDArray[np.intp]:
    require(0 <= rate <= 1, "rate", rate, "a number in [0, 1]")
    return np.argsort(order, kind="stable")[: round(rate * len(order))]


def _hash(seed: int, stream: int, columns: Sequence[Hashes]) -> Hashes:
    """A 64-bit hash of (seed, stream, id) for each sample."""
    state = _mix(_mix(np.array([int(seed) % 2**64], np.uint64)) ^ np.uint64(stream))
    for column in columns:
        state = _mix(state ^ column)
    return state


def _id_columns(count: int, ids: Ids | None) -> list[Hashes]:
    """The columns that identify each of ``count`` samples, as 64-bit numbers."""
    if ids is None:
        return [np.arange(count, dtype=np.uint64)]
    columns = [_as_numbers(column) for column in (ids if isinstance(ids, tuple) else (ids,))]
    for column in columns:
        require(column.shape == (count,), "shape of ids", column.shape, f"({count},)")
    return columns


def _as_numbers(column: ArrayLike | Sequence[str]) -> Hashes:
    array = np.asarray(column)
    if array.dtype.kind == "i":
        return array.astype(np.int64).view(np.uint64)
    if array.dtype.kind == "u":
        return array.astype(np.uint64)
    strings = array.tolist()
    are_strings = all(isinstance(value, str) for value in strings)
    require(are_strings, "dtype of ids", array.dtype.name, "integers or strings")
    digests = (hashlib.blake2b(value.encode(), digest_size=8).digest() for value in strings)
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _copied_labels(labels: ArrayLike, num_classes: int | None = None) -> Labels:
    array = np.asarray(labels)
    is_list_of_integers = array.ndim == 1 and (array.dtype.kind in "iu" or array.size == 0)
    found = f"{array.dtype.name} of shape {array.shape}"
    require(is_list_of_integers, "labels", found, "integers of shape (N,)")
    if num_classes is not None and array.size:
        found = f"{array.min()} to {array.max()}"
        in_range = array.min() >= 0 and array.max() < num_classes
        require(bool(in_range), "range of labels", found, f"0 to {num_classes - 1}")
    return array.astype(np.int64)


def _mix(x: Hashes) -> Hashes:
    """SplitMix64: a bijection of 64-bit numbers in which every bit depends on every bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniform_integers(hashes: Hashes, count: int) -> Labels:
    """Map hashes to [0, count), uniformly up to 2^-32 x count."""
    return ((hashes >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)

"""Retrieval data sets by name, and any of them with noise: ``<base>_<kind><percent>_s<seed>``.

For example ``landmarks_clean_train_sym40_s0``. The kinds of label noise:

- ``sym``: exactly round(rate x N) images get another label, uniform over the others.
- ``symkeep``: the same, uniform over all labels, the own one included.

Images are ordered by a hash of (seed, image id) and the first are taken: the same on every machine
wherever the images lie, and for one seed the 20 % set lies inside the 40 % set. The true labels
stay in ``clean_labels``. Fixed pairs of the base are dropped, since wrong labels would not reach
them: pairs are then drawn by the noisy labels.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import replace

from sl_core import noise
from sl_retrieval.data import RetrievalData

_NAME = re.compile(r"(?P<base>.+)_(?P<kind>symkeep|sym)(?P<percent>\d+)_s(?P<seed>\d+)")
_NOISE = {"sym": noise.symmetric, "symkeep": noise.symmetric_keep}
_builders: dict[str, Callable[[], RetrievalData]] = {}
logger = logging.getLogger(__name__)


def register(name: str, build: Callable[[], RetrievalData]) -> None:
    """Make a data set known; ``build`` is called each time that someone gets it."""
    if name in _builders:
        raise ValueError(f"data set {name!r} is registered already")
    _builders[name] = build


def names() -> tuple[str, ...]:
    """The registered names, sorted; noisy versions are not among them."""
    return tuple(sorted(_builders))


def is_known(name: str) -> bool:
    """Whether ``get`` would know the name, noisy versions included."""
    match = _NAME.fullmatch(name)
    return name in _builders or (match is not None and match["base"] in _builders)


def get(name: str) -> RetrievalData:
    """Build a registered data set, or a noisy version of one."""
    if name in _builders:
        return _builders[name]()
    match = _NAME.fullmatch(name)
    if match is None or match["base"] not in _builders:
        raise ValueError(
            f"unknown data set {name!r}, expected one of {', '.join(names()) or '(none)'}, or one "
            "of these with noise, <name>_<sym|symkeep><percent>_s<seed>"
        )
    percent = int(match["percent"])
    if percent > 100:
        raise ValueError(f"data set {name!r}: {percent} %, expected 0 to 100")
    base = _builders[match["base"]]()
    return _with_noise(base, name, match["kind"], percent / 100, int(match["seed"]))


def _with_noise(data: RetrievalData, name: str, kind: str, rate: float, seed: int) -> RetrievalData:
    labels = _NOISE[kind](data.labels, len(data.label_names), rate, seed, list(data.ids))
    clean = data.labels if data.clean_labels is None else data.clean_labels
    noisy = replace(data, name=name, labels=labels, clean_labels=clean, pairs=None)
    wrong, digest = int(noisy.is_wrong.sum()), noise.digest(labels)
    logger.info("%s: %d of %d labels are wrong, digest %s", name, wrong, len(labels), digest)
    return noisy

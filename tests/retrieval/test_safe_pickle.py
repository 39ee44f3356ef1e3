"""A pickle from elsewhere gives plain values or a ValueError, and runs nothing."""

import collections
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sl_retrieval.safe_pickle import load_plain_pickle

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(PLAIN, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_come_back_in_every_protocol(
    tmp_path_factory: pytest.TempPathFactory, value: object, protocol: int
) -> None:
    file = tmp_path_factory.mktemp("plain") / "a.pkl"
    file.write_bytes(pickle.dumps(value, protocol))
    assert load_plain_pickle(file) == value


class Planted:
    """On unpickling, creates a file."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_planted_call_is_refused_and_not_executed(tmp_path: Path, protocol: int) -> None:
    victim, file = tmp_path / "executed", tmp_path / "planted.pkl"
    content = pickle.dumps({"imlist": ["a"], "gnd": [Planted(victim)]}, protocol)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"planted\.pkl.*(Path|getattr)"):
        load_plain_pickle(file)
    assert not victim.exists()
    pickle.loads(content)
    assert victim.exists()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.arange(3), "numpy"),
        (collections.OrderedDict(a=1), "OrderedDict"),
        (len, "len"),
        (1j, "complex"),
    ],
)
def test_every_class_and_function_is_refused_by_name(
    tmp_path: Path, value: object, name: str
) -> None:
    file = tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps([value]))
    with pytest.raises(ValueError, match=f"a.pkl.*{name}"):
        load_plain_pickle(file)


def test_any_truncation_is_a_value_error_that_names_the_file(tmp_path: Path) -> None:
    content = pickle.dumps({"cids": ["a" * 300, "b"], "qidxs": [1, 2, 3], "x": (1.5, b"c")})
    file = tmp_path / "cut.pkl"
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"cut\.pkl"):
            load_plain_pickle(file)


@given(st.binary(max_size=60))
def test_garbage_gives_a_value_or_a_value_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.mktemp("garbage") / "a.pkl"
    file.write_bytes(content)
    try:
        load_plain_pickle(file)
    except ValueError as error:
        assert "a.pkl" in str(error)


@pytest.mark.parametrize(("encoding", "raw"), [("utf-8", b"\xc3\xa9"), ("latin-1", b"\xe9")])
def test_strings_of_python_2_are_read_in_either_encoding(
    tmp_path: Path, encoding: str, raw: bytes
) -> None:
    file = tmp_path / "old.pkl"
    file.write_bytes(b"\x80\x02]q\x00(U\x02abU" + bytes([len(raw)]) + raw + b"e.")
    assert load_plain_pickle(file) == ["ab", "é"]

"""Text files that list images and labels."""

import csv
from collections.abc import Iterator
from pathlib import Path

_COLUMNS = {"image": ("image", "path"), "label": ("label", "landmark"), "split": ("split",)}
_FORMS = (
    "a header with a column image or path and a column label or landmark, or two columns, image "
    "and label, without header"
)


def read_list(file: Path, split: str | None = None) -> Iterator[tuple[str, str]]:
    """The (image, label) of each row.

    The first line decides the separator: tab, else comma, else any whitespace. It is a header if
    it names the columns: image or path, label or landmark, and perhaps split, in any order and
    among others. Without header there are two columns, image and label. Empty lines are skipped.

    Args:
        file: the list, in UTF-8.
        split: only rows that have this in the column split; None gives all rows.

    Raises:
        ValueError: the file is missing or has another form, or a row another number of columns.
    """
    rows = _rows(file)
    if not rows:
        raise ValueError(f"list {file} is empty, expected {_FORMS}")
    columns = _columns(file, rows[0][1])
    if columns is None:
        columns = {"image": 0, "label": 1}
        width = 2
    else:
        width = len(rows[0][1])
        del rows[0]
    if split is not None and "split" not in columns:
        raise ValueError(f"list {file} has no column split, but split {split!r} is asked for")
    splits = set()
    empty = True
    for number, cells in rows:
        if len(cells) != width:
            raise ValueError(f"{file}, line {number}: {len(cells)} columns, expected {width}")
        image, label = cells[columns["image"]], cells[columns["label"]]
        if not image or not label:
            raise ValueError(f"{file}, line {number}: empty image or label, expected both")
        if split is not None:
            splits.add(cells[columns["split"]])
            if cells[columns["split"]] != split:
                continue
        empty = False
        yield image, label
    if empty:
        found = f"only splits {', '.join(sorted(splits))}" if splits else "no rows"
        wanted = f" of split {split!r}" if split is not None else ""
        raise ValueError(f"list {file} has {found}, expected at least one row{wanted}")


def _rows(file: Path) -> list[tuple[int, list[str]]]:
    """The non-empty lines, as line number and stripped cells."""
    if not file.is_file():
        raise ValueError(f"no list file {file}, expected {_FORMS}")
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"list {file} is not UTF-8 text: {error}") from None
    first = next((line for line in lines if line.strip()), "")
    separator = next((mark for mark in "\t," if mark in first), None)
    cells = (
        (line.split() for line in lines)
        if separator is None
        else csv.reader(lines, delimiter=separator)
    )
    return [
        (number, [cell.strip() for cell in row])
        for number, row in enumerate(cells, 1)
        if any(cell.strip() for cell in row)
    ]


def _columns(file: Path, first: list[str]) -> dict[str, int] | None:
    """Where image, label and split are; None if the first row is no header."""
    header = [cell.lower() for cell in first]
    columns = {}
    for key, known in _COLUMNS.items():
        places = [position for position, cell in enumerate(header) if cell in known]
        if len(places) > 1:
            raise ValueError(f"list {file} has {len(places)} columns for the {key}, expected one")
        if places:
            columns[key] = places[0]
    if {"image", "label"} <= columns.keys():
        return columns
    if columns or len(first) != 2:
        raise ValueError(f"list {file} begins with {first}, expected {_FORMS}")
    return None

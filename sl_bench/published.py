"""The papers' numbers as data: the CSV files of configs/bench/published."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

PAPERS = ("superloss_supplementary", "imae", "gradient_rescaling")
NOISES = ("none", "sym", "symkeep", "asym_pairs", "asym_group", "uniform", "unknown")
# Metric of a CSV to its key in result.json. A table that does not say whether it has the best or
# the final accuracy is compared with the final one.
METRICS = {
    "accuracy": "test_accuracy_final",
    "accuracy_best": "test_accuracy_best",
    "accuracy_final": "test_accuracy_final",
    "accuracy_retrained": "test_accuracy_final",
    "mae": "test_mae_final",
    "train_corrupted": "train_accuracy_given",
    "train_intact": "train_accuracy_true",
    "train_noisy": "fit_of_wrong_labels",
    "train_clean": "fit_of_right_labels",
    "hybrid": "hybrid_accuracy",
}


@dataclass(frozen=True)
class PublishedResult:
    """One number of a table.

    Attributes:
        paper: one of PAPERS.
        table: its number there.
        dataset: as DATASET.NAME, or vehicles10.
        noise: as NOISE.KIND; none where the rate is 0, unknown for real noise.
        rate: part of the training labels, in [0, 1].
        method: as printed.
        setting: what tells rows of a method apart, as ``key=value; key=value``; may be empty.
        metric: a key of METRICS.
        value: percent for accuracies, a mean absolute error for mae.
        deviation: over runs; None if it is not given.
        note: what the text leaves in doubt.
    """

    paper: str
    table: int
    dataset: str
    noise: str
    rate: float
    method: str
    setting: str
    metric: str
    value: float
    deviation: float | None
    note: str

    @property
    def key(self) -> tuple[object, ...]:
        """What no two numbers share."""
        parts = (self.paper, self.table, self.dataset, self.noise, self.rate)
        return (*parts, self.method, self.setting, self.metric)

    @property
    def options(self) -> dict[str, str]:
        """The setting, taken apart; a word without a value, such as tuned, has an empty one."""
        parts = (part.partition("=") for part in self.setting.split("; ") if part)
        return {name: value for name, _, value in parts}


COLUMNS = tuple(field.name for field in fields(PublishedResult))


def read_published(folder: Path = Path("configs/bench/published")) -> list[PublishedResult]:
    """All numbers of all CSV files of a folder.

    Raises:
        ValueError: no file, or a bad or repeated line; names file and line.
    """
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise ValueError(f"{folder} has no *.csv, expected the tables of the papers")
    numbers: list[PublishedResult] = []
    seen: dict[tuple[object, ...], str] = {}
    for file in files:
        with file.open(newline="", encoding="utf-8") as stream:
            rows = csv.reader(stream)
            header = tuple(next(rows, ()))
            if header != COLUMNS:
                expected = ",".join(COLUMNS)
                raise ValueError(f"{file}, line 1: {','.join(header)}, expected {expected}")
            for cells in rows:
                where = f"{file}, line {rows.line_num}"
                number = _parse(cells, where)
                if number.key in seen:
                    raise ValueError(f"{where}: the same row as {seen[number.key]}")
                seen[number.key] = where
                numbers.append(number)
    return numbers


def _parse(cells: list[str], where: str) -> PublishedResult:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{where}: {len(cells)} columns, expected {len(COLUMNS)}")
    row = dict(zip(COLUMNS, cells, strict=True))
    for column, known in (("paper", PAPERS), ("noise", NOISES), ("metric", tuple(METRICS))):
        if row[column] not in known:
            found = f"{column} is {row[column]!r}"
            raise ValueError(f"{where}: {found}, expected one of {', '.join(known)}")
    for column in ("dataset", "method"):
        if not row[column]:
            raise ValueError(f"{where}: {column} is empty")
    rate, value = (_number(row, column, where) for column in ("rate", "value"))
    deviation = _number(row, "deviation", where) if row["deviation"] else None
    if rate > 1:
        raise ValueError(f"{where}: rate is {rate}, expected a number in [0, 1]")
    if not row["table"].isdigit():
        raise ValueError(f"{where}: table is {row['table']!r}, expected a number")
    words = {name: row[name] for name in ("paper", "dataset", "noise", "method")}
    return PublishedResult(
        **words,
        table=int(row["table"]),
        rate=rate,
        setting=row["setting"],
        metric=row["metric"],
        value=value,
        deviation=deviation,
        note=row["note"],
    )


def _number(row: Mapping[str, str], column: str, where: str) -> float:
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{where}: {column} is {row[column]!r}, expected a number of at least 0")
    return number

"""The papers' numbers: complete, in range, and compared with the right runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from sl_bench.comparison import Run, comparison_table, read_run
from sl_bench.config import load_config
from sl_bench.published import COLUMNS, PublishedResult, read_published

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "bench"
# Numbers that each table prints.
COUNTS = {
    ("superloss_supplementary", 1): 20,
    ("superloss_supplementary", 2): 20,
    ("superloss_supplementary", 3): 20 * 6 - 28,
    ("superloss_supplementary", 4): 11 * 8 - 20,
    ("imae", 3): 16 * 4,
    ("imae", 4): 10 * 3,
    ("imae", 5): 12,
    ("imae", 6): 18 * 5 - 6,
    ("gradient_rescaling", 2): 9,
    ("gradient_rescaling", 3): 24 * 4,
    ("gradient_rescaling", 4): 4 * 9 - 6,
    ("gradient_rescaling", 5): 3 * 10,
    ("gradient_rescaling", 8): 8,
    ("gradient_rescaling", 9): 16,
    ("gradient_rescaling", 10): 8,
    ("gradient_rescaling", 11): 4 * 7 - 2,
}


@pytest.fixture(scope="module")
def published() -> list[PublishedResult]:
    return read_published(CONFIGS / "published")


def test_every_table_has_all_its_numbers(published: list[PublishedResult]) -> None:
    found = dict.fromkeys(COUNTS, 0)
    for number in published:
        found[number.paper, number.table] += 1
    assert found == COUNTS


def test_numbers_are_in_range(published: list[PublishedResult]) -> None:
    for number in published:
        largest = 30 if number.metric == "mae" else 100
        assert 0 < number.value <= largest, number
        assert number.deviation is None or 0 <= number.deviation < 5, number
        assert (number.noise == "none") == (number.rate == 0), number
        assert number.deviation is None or number.deviation < number.value or number.note, number


def test_what_two_tables_share_is_the_same(published: list[PublishedResult]) -> None:
    """Table 11 repeats rows of table 3, table 8 one of table 5."""
    by_key = {number.key[1:]: number.value for number in published if number.paper.startswith("g")}
    repeated = [key for key in by_key if key[0] == 11 and (3, *key[1:]) in by_key]
    assert len(repeated) == 16
    for key in repeated:
        assert by_key[key] == by_key[(3, *key[1:])], key
    setting = "network=resnet44; beta=8; lam=0.5"
    both = [(5, "cifar100", "sym", 0.4, "GR"), (8, "cifar100", "sym", 0.4, "GR+L2")]
    values = [by_key[(*row, setting, "accuracy")] for row in both]
    assert values == [59.3, 59.3]


def test_training_sets_are_the_mean_of_their_parts(published: list[PublishedResult]) -> None:
    """Table 11: corrupted = (1 - r) clean + r noisy, but for rows whose note says otherwise."""
    rows: dict[tuple[float, str], dict[str, PublishedResult]] = {}
    for number in published:
        if (number.paper, number.table) == ("gradient_rescaling", 11):
            rows.setdefault((number.rate, number.method), {})[number.metric] = number
    for (rate, _), row in rows.items():
        parts = (1 - rate) * row["train_clean"].value + rate * row["train_noisy"].value
        agrees = parts == pytest.approx(row["train_corrupted"].value, abs=1)
        assert agrees != ("do not agree" in row["train_clean"].note)


GOOD = "imae,3,cifar100,sym,0.4,IMAE,network=resnet44,accuracy,54.7,,"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["paper,table"], r"t\.csv, line 1: paper,table, expected paper,table,dataset"),
        ([GOOD, GOOD], r"t\.csv, line 3: the same row as .*line 2"),
        ([GOOD[:-1]], "line 2: 10 columns, expected 11"),
        ([GOOD.replace("sym", "asym")], "line 2: noise is 'asym', expected one of none, sym"),
        ([GOOD.replace("54.7", "54,7")], "line 2: 12 columns"),
        ([GOOD.replace("54.7", "x")], "line 2: value is 'x', expected a number"),
        ([GOOD.replace("0.4", "40")], r"line 2: rate is 40.0, expected a number in \[0, 1\]"),
        ([GOOD.replace(",3,", ",III,")], "line 2: table is 'III'"),
        ([GOOD.replace("IMAE", "")], "line 2: method is empty"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, lines: list[str], message: str) -> None:
    header = [] if lines[0].startswith("paper") else [",".join(COLUMNS)]
    (tmp_path / "t.csv").write_text("\n".join([*header, *lines]) + "\n")
    with pytest.raises(ValueError, match=message):
        read_published(tmp_path)


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no"):
        read_published(tmp_path)


def run_of(name: str, options: list[str], **result: Any) -> Run:
    return Run(load_config(CONFIGS / f"{name}.yaml", options), result)


def test_seeds_are_averaged_and_stand_beside_their_row(published: list[PublishedResult]) -> None:
    runs = [
        run_of(
            "superloss/cifar100_superloss_avg",
            ["NOISE.KIND", "symkeep", "NOISE.RATE", "0.4", "SEED", str(seed)],
            test_accuracy_final=accuracy,
        )
        for seed, accuracy in enumerate((70.0, 71.0, 72.0))
    ]
    head, _, *lines = comparison_table(runs, published).splitlines()
    assert head.count("|") == 9
    cells = "superloss_supplementary 4 | cifar100 | symkeep 40% | SuperLoss, tau=avg | accuracy"
    assert lines == [f"| {cells} | 71.05 ± 0.08 | 71.00 ± 1.00 | 3 |"]


def test_a_run_is_compared_with_all_columns_that_it_has(published: list[PublishedResult]) -> None:
    run = run_of(
        "gradient_rescaling/cifar10_resnet56_gr",
        ["NOISE.RATE", "0.4", "LOSS.BETA", "16.0", "LOSS.GR_LAMBDA", "1.0"],
        test_accuracy_best=85.0,
        test_accuracy_final=84.0,
        fit_of_wrong_labels=8.0,
    )
    lines = comparison_table([run], published).splitlines()[2:]
    tables = [line.split(" | ")[0] for line in lines]
    assert tables == ["| gradient_rescaling 11"] * 3 + ["| gradient_rescaling 3"] * 2
    assert sum("| 83.30 | 84.00 | 1 |" in line for line in lines) == 2


def test_no_row_is_taken_for_another(published: list[PublishedResult]) -> None:
    """A run whose setting is in no table has no line."""
    other = ["NOISE.RATE", "0.4", "LOSS.BETA", "17.0"]
    run = run_of("gradient_rescaling/cifar10_resnet56_gr", other, test_accuracy_final=84.0)
    assert len(comparison_table([run], published).splitlines()) == 2


def test_two_runs_that_are_the_same_are_refused(published: list[PublishedResult]) -> None:
    runs = [run_of("digits_cce", ["OUTPUT_DIR", name]) for name in ("a", "b")]
    with pytest.raises(ValueError, match="a and b have the same settings and SEED 0"):
        comparison_table(runs, published)


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"result\.json"):
        read_run(tmp_path)
    cfg = load_config(CONFIGS / "digits_cce.yaml", [])
    (tmp_path / "config.yaml").write_text(cfg.dump())
    (tmp_path / "result.json").write_text(json.dumps({"test_accuracy_final": 90.0}))
    run = read_run(tmp_path)
    assert run.cfg == cfg
    assert run.result == {"test_accuracy_final": 90.0}

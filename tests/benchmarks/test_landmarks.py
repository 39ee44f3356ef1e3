"""The experiment runner for retrieval: lists and ground truths of a folder, starts, the table."""

import json
from pathlib import Path

import pytest

from benchmarks import landmarks
from sl_retrieval.config import load_config
from sl_retrieval.ground_truth import load_ground_truth


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "small10"
    (root / "jpg").mkdir(parents=True)
    rows = ["image,landmark,cluster,split"]
    for number in range(6):
        (root / "jpg" / f"{number}.jpg").touch()
        rows.append(f"{number},{'abc'[number // 2]},0,{'train' if number % 2 else 'val'}")
    (root / "images.csv").write_text("\n".join(rows))
    split = {"train_landmarks": ["a", "b"], "test_landmarks": ["c"]}
    (root / "openset_split.json").write_text(json.dumps(split))
    entries = [{"ok": [0], "junk": []}, {"ok": [2], "junk": []}]
    truth = {"imlist": ["0", "2", "4"], "qimlist": ["0", "4"], "gnd": entries}
    (root / "gnd_small10.json").write_text(json.dumps(truth))
    return root


def test_the_open_set_trains_on_other_landmarks_than_it_asks_for(
    folder: Path, tmp_path: Path
) -> None:
    closed, opened = landmarks.real_experiments(folder, tmp_path / "out")
    for experiment, listed, queries in ((closed, "abc", 2), (opened, "ab", 1)):
        place = tmp_path / "out" / "data" / experiment.test
        rows = (place / "train.csv").read_text().splitlines()[1:]
        assert [row.split(",")[1] for row in rows] == list(listed)
        truth = load_ground_truth(place / f"gnd_{experiment.test}.json")
        assert len(truth.queries) == len(truth.relevance) == queries
        assert len(truth.images) == 3, "the whole database stays"
        assert (place / "jpg" / "0.jpg").exists()
    assert truth.queries == ("4",)
    landmarks.real_experiments(folder, tmp_path / "out")


def test_both_methods_begin_with_the_start_of_their_seed_and_rate(
    folder: Path, tmp_path: Path
) -> None:
    experiment = landmarks.real_experiments(folder, tmp_path)[0]
    weights = {}
    for method in landmarks.METHODS:
        call = landmarks.Run(experiment, method, 40, 1).training(tmp_path).arguments
        cfg = load_config(Path(call[1]), list(call[2:]))
        assert cfg.DATASETS.TRAIN == "closed_train_sym40_s1"
        assert cfg.SEED == 1
        weights[method] = (cfg.MODEL.WEIGHTS, bool(cfg.WARMUP.EPOCHS), bool(cfg.SOLVER.EPOCHS))
    start = landmarks.Run(experiment, "start", 40, 1).folder(tmp_path)
    assert weights["start"] == ("none", True, False)
    assert weights["baseline"] == weights["superloss"]
    assert weights["baseline"] == (str(start / "model_best.pth.tar"), False, True)


def test_the_table_has_mean_and_deviation_of_what_is_finished(tmp_path: Path) -> None:
    experiment = landmarks.Experiment("some", "procedural", "a", "b")
    runs = [landmarks.Run(experiment, "baseline", 40, seed) for seed in (0, 1, 2)]
    for run, value in zip(runs, (0.3, 0.35, 0.4), strict=True):
        run.folder(tmp_path).mkdir()
        results = {"b": {"all": {"map": value}}}
        (run.folder(tmp_path) / "results.json").write_text(json.dumps(results))
    table = landmarks.table(runs, tmp_path)
    assert "| baseline | 35.0 ± 5.0 |" in table
    assert "| superloss |  |" in table

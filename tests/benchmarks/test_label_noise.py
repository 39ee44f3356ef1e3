"""The runner of classification and regression: configs exist, tables show what is done."""

import json
from pathlib import Path

import pytest

from benchmarks import label_noise
from sl_bench.config import load_config


@pytest.mark.parametrize("name", list(label_noise.EXPERIMENTS))
def test_every_method_has_its_config_which_takes_the_options(name: str, tmp_path: Path) -> None:
    for method in label_noise.EXPERIMENTS[name].methods:
        run = label_noise.Run(name, method, 20, 1)
        call = run.training(tmp_path, tmp_path, ("SOLVER.EPOCHS", "3")).arguments
        options = [word for word in call[2:] if word != "--resume"]
        cfg = load_config(Path(call[1]), options)
        assert (cfg.NOISE.RATE, cfg.SEED, cfg.SOLVER.EPOCHS) == (0.2, 1, 3)
        assert str(tmp_path) == cfg.DATASET.ROOT


def test_tables_have_mean_and_deviation_of_what_is_finished(tmp_path: Path) -> None:
    runs = [label_noise.Run("fashion", "cce", 40, seed) for seed in (0, 1, 2)]
    for run, accuracy in zip(runs[:2], (0.5, 0.6), strict=True):
        run.folder(tmp_path).mkdir()
        result = {"test_accuracy_final": accuracy, "fit_of_wrong_labels": None}
        (run.folder(tmp_path) / "result.json").write_text(json.dumps(result))
    text = label_noise.tables(runs, label_noise.EXPERIMENTS["fashion"], tmp_path)
    first, _, third, _ = text.split("\n\n")
    assert "| cce | 55.0 ± 7.1 |" in first
    assert "| cce |  |" in third

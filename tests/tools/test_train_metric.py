"""The command line of metric learning: train, resume after a kill, evaluate, bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks import omniglot
from benchmarks.grid import run_training
from sl_retrieval.state_files import read_state_file
from tools import train_metric

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "retrieval" / "metric" / "omniglot_bspml.yaml"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Omniglot's layout: two sets that share an alphabet, characters of random strokes."""
    root = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    for number, alphabets in ((1, ("Greek", "Korean")), (2, ("Greek", "Tagalog"))):
        for alphabet in alphabets:
            for character in range(9):
                folder = root / "omniglot_small" / f"images_background_small{number}" / alphabet
                folder = folder / f"character{character}"
                folder.mkdir(parents=True)
                strokes = generator.random((5, 5)) > 0.5
                for copy in range(5):
                    pixels = np.kron(strokes, np.ones((6, 6))) > 0
                    shifted = np.roll(pixels, tuple(generator.integers(-2, 3, 2)), (0, 1))
                    Image.fromarray(shifted).save(folder / f"{copy}.png")
    return root


@pytest.fixture
def in_process(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For calls of main() here: the data are found, and pytest's loggers stay as they are."""
    monkeypatch.setenv("RETRIEVAL_DATASETS", str(data))
    monkeypatch.setattr(train_metric, "_log_to", lambda _: None)


def start(data: Path, *arguments: object) -> subprocess.Popen[str]:
    tool = ROOT / "tools" / "train_metric.py"
    call = [sys.executable, str(tool), "--config-file", str(CONFIG), *map(str, arguments)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "RETRIEVAL_DATASETS": str(data),
    }
    return subprocess.Popen(
        call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    return output


def small(output: Path) -> list[str]:
    options = {
        "OUTPUT_DIR": output,
        "DATASETS.TRAIN": "omniglot_small1_sym20_s0",
        "MODEL.DEVICE": "cpu",
        "SOLVER.EPOCHS": 3,
        "SOLVER.STEPS_PER_EPOCH": 10,
        "SELF_PACED.PASSES": 5,
    }
    return [str(text) for pair in options.items() for text in pair]


def test_killed_and_resumed_equals_undisturbed_and_can_be_evaluated(
    data: Path, in_process: None, tmp_path: Path
) -> None:
    text = finished(start(data, *small(tmp_path / "whole")))
    assert "omniglot_small1_sym20_s0: 18 of 90 labels are wrong" in text
    results = json.loads((tmp_path / "whole" / "results.json").read_text())
    assert list(results) == ["recall@1", "recall@2", "recall@4", "recall@8", "nmi"]
    process = start(data, *small(tmp_path / "killed"))
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "model_last.pth").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert "going on after epoch" in finished(start(data, "--resume", *small(tmp_path / "killed")))
    states = [read_state_file(tmp_path / name / "model_last.pth") for name in ("whole", "killed")]
    for key in ("state_dict", "optimizer", "weights"):
        torch.testing.assert_close(states[0][key], states[1][key], rtol=0, atol=0)
    options = small(tmp_path / "whole")
    assert train_metric.main(CONFIG, options, resume=True, eval_only=True) == results
    weights = ["MODEL.WEIGHTS", str(tmp_path / "whole" / "model_last.pth")]
    train_metric.main(CONFIG, [*small(tmp_path / "elsewhere"), *weights], eval_only=True)
    assert json.loads((tmp_path / "elsewhere" / "results.json").read_text()) == results
    with pytest.raises(ValueError, match="holds a training already; --resume"):
        train_metric.main(CONFIG, options)


def test_a_bad_argument_gives_one_message(data: Path, tmp_path: Path) -> None:
    process = start(data, *small(tmp_path), "METHOD", "best")
    errors = process.communicate(timeout=200)[1]
    assert process.returncode == 1
    expected = "error: METHOD is 'best', expected one of contrastive, ms, spms, bspml, ms_superloss"
    assert errors.strip() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["DATASETS.TRAIN", "cub200_train"], "no folder .*CUB_200_2011.*RETRIEVAL_DATASETS"),
        (["DATASETS.TWO_LEVELS", "['a']"], "DATASETS.TWO_LEVELS has the entry 'a'"),
        (["SEED"], "expected pairs of key and value"),
    ],
)
def test_bad_options_are_named(
    in_process: None, tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train_metric.main(CONFIG, [*small(tmp_path), *options])


def test_evaluation_without_a_checkpoint_says_what_it_wants(
    in_process: None, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"MODEL.WEIGHTS is none, expected a checkpoint"):
        train_metric.main(CONFIG, small(tmp_path), eval_only=True)


def test_the_benchmark_keeps_finished_runs_and_shows_mean_and_deviation(tmp_path: Path) -> None:
    runs = [omniglot.Run(m, 40, seed) for m in ("ms", "bspml") for seed in (0, 1)]
    for run, recall in zip(runs[:2], (0.4, 0.5), strict=True):
        run.folder(tmp_path).mkdir()
        results = {"recall@1": recall, "nmi": 0.25}
        (run.folder(tmp_path) / "results.json").write_text(json.dumps(results))
    table = omniglot.table(runs, tmp_path)
    assert "| ms | 45.0 ± 7.1 | 25.0 ± 0.0 |" in table
    assert "| bspml |  |  |" in table
    run_training(omniglot.training(runs[0], tmp_path, tmp_path))
    assert not (runs[0].folder(tmp_path) / "console.txt").exists()
    for method in omniglot.METHODS:
        config = ROOT / "configs" / "retrieval" / "metric" / f"omniglot_{method}.yaml"
        assert config.exists()

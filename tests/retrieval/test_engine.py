"""The trainer on small pictures: plain epochs, resume, two processes, what it writes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fvcore.common.config import CfgNode

from sl_retrieval import catalog
from sl_retrieval.build import register_datasets
from sl_retrieval.builders import from_folders
from sl_retrieval.checkpoint import load_checkpoint, load_network
from sl_retrieval.config import load_config
from sl_retrieval.engine import BEST, LAST, WARM, RetrievalTrainer

ROOT = Path(__file__).parents[2]
OPTIONS = {
    "MODEL.ARCHITECTURE": "squeezenet1_1",
    "MODEL.WEIGHTS": "none",
    "MODEL.DEVICE": "cpu",
    "LOSS.ROBUST.NAME": "superloss",
    "LOSS.ROBUST.TAU": "expavg",
    "DATASETS.TRAIN": "pictures_sym40_s0",
    "DATASETS.VAL": "pictures",
    "DATASETS.TEST": "['pictures']",
    "INPUT.IMAGE_SIZE": "48",
    "MINING.NUM_QUERIES": "8",
    "MINING.POOL_SIZE": "24",
    "MINING.NEGATIVES": "2",
    "SOLVER.BASE_LR": "1e-4",
    "SOLVER.EPOCHS": "3",
    "SOLVER.BATCH_SIZE": "4",
    "SOLVER.TUPLES_PER_FORWARD": "2",
    "VALIDATION.NUM_QUERIES": "8",
    "DATALOADER.NUM_WORKERS": "0",
}


# Adam does not see the scale of a gradient, so a mean in the place of a sum would not show.
SCALE_MATTERS = {"SOLVER__OPTIMIZER": "sgd", "SOLVER__BASE_LR": 1e-3}


def options_for(folder: Path, output: Path, **changes: Any) -> list[str]:
    options = OPTIONS | {"DATASETS.FOLDERS": f"[['pictures', '{folder}']]"}
    options |= {"OUTPUT_DIR": str(output)}
    options |= {key.replace("__", "."): str(value) for key, value in changes.items()}
    return [text for pair in options.items() for text in pair]


def config_for(folder: Path, output: Path, **changes: Any) -> CfgNode:
    changes["DATASETS__FOLDERS"] = "[]"
    if "pictures" not in catalog.names():
        catalog.register("pictures", lambda: from_folders("pictures", folder))
    return load_config(None, options_for(folder, output, **changes))


def run_tool(arguments: list[str], processes: int = 1) -> subprocess.Popen[bytes]:
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*start, str(ROOT / "tools" / "train_retrieval.py"), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finished(process: subprocess.Popen[bytes]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output.decode()
    return output.decode()


def assert_equal_trainings(one: Path, other: Path) -> None:
    """Bit for bit the same weights, thresholds, optimiser and numbers, but for the seconds."""
    first, second = load_checkpoint(one / LAST), load_checkpoint(other / LAST)
    for checkpoint in (first, second):
        for row in checkpoint["trainer"]["history"]:
            del row["seconds"]
        del checkpoint["meta"], checkpoint["trainer"]["identity"]  # text
    torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)


@pytest.fixture(scope="module")
def whole_run(picture_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of three epochs that nobody disturbed, by the command line."""
    output = tmp_path_factory.mktemp("runs") / "whole"
    text = finished(run_tool(options_for(picture_folder, output)))
    assert "pictures_sym40_s0: 19 of 48 labels are wrong" in text
    return output


def test_a_training_writes_what_it_promises(whole_run: Path) -> None:
    metrics = json.loads((whole_run / "metrics.json").read_text())
    assert [row["epoch"] for row in metrics] == [0, 1, 2]
    for row in metrics:
        assert {"loss", "robust_loss", "val_loss", "val_map", "lr", "sl/tau_positive"} <= set(row)
    rates = [row["lr"] for row in metrics]
    np.testing.assert_allclose(rates, 1e-4 * np.exp(-0.01 * np.array([1, 2, 3])))
    results = json.loads((whole_run / "results.json").read_text())
    assert 0 < results["pictures"]["all"]["map"] <= 1
    assert len(results["pictures"]["all"]["per_query"]["ap"]) == 48
    rows = json.loads((whole_run / "label_confidence.json").read_text())
    assert rows == sorted(rows, key=lambda row: row["confidence"])
    assert all(row["is_wrong"] == (row["label"] != row["clean_label"]) for row in rows)
    assert list(whole_run.glob("events.out.tfevents.*"))
    assert load_network(whole_run / BEST).meta["architecture"] == "squeezenet1_1"
    checkpoint = load_checkpoint(whole_run / LAST)
    assert checkpoint["epoch"] == 3
    assert checkpoint["min_loss"] == min(row["val_loss"] for row in metrics)
    best = load_checkpoint(whole_run / BEST)["epoch"] - 1
    assert metrics[best]["val_map"] == max(row["val_map"] for row in metrics)


def test_killed_in_the_middle_and_resumed_equals_undisturbed(
    whole_run: Path, picture_folder: Path, tmp_path: Path
) -> None:
    arguments = options_for(picture_folder, tmp_path)
    process = run_tool(arguments)
    deadline = time.monotonic() + 120
    while not (tmp_path / LAST).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = load_checkpoint(tmp_path / LAST)["epoch"]
    assert 1 <= done <= 3
    text = finished(run_tool(["--resume", *arguments]))
    assert f"going on after epoch {done}" in text
    assert_equal_trainings(tmp_path, whole_run)


def test_two_processes_equal_one_with_twice_the_batch(picture_folder: Path, tmp_path: Path) -> None:
    """An odd number of tuples, so that one process has nothing to do in the last step."""
    shared = {"MINING__NUM_QUERIES": 9, "SOLVER__EPOCHS": 2, **SCALE_MATTERS}
    for name, processes, together in (("one", 1, 2), ("two", 2, 1)):
        changes = shared | {"SOLVER__TUPLES_PER_FORWARD": together}
        arguments = options_for(picture_folder, tmp_path / name, **changes)
        finished(run_tool(arguments, processes))
    one, two = (load_checkpoint(tmp_path / name / LAST) for name in ("one", "two"))
    assert one["superloss"]["robust.count"].tolist() == two["superloss"]["robust.count"].tolist()
    torch.testing.assert_close(one["superloss"], two["superloss"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(one["state_dict"], two["state_dict"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        one["trainer"]["label_confidence"], two["trainer"]["label_confidence"], rtol=1e-4, atol=1e-6
    )
    for first, second in zip(one["trainer"]["history"], two["trainer"]["history"], strict=True):
        assert first["loss"] == pytest.approx(second["loss"], rel=1e-4)
        assert first["val_loss"] == pytest.approx(second["val_loss"], rel=1e-4)


def test_with_lam_to_infinity_a_training_equals_the_plain_one(
    picture_folder: Path, tmp_path: Path
) -> None:
    weights = []
    for name, changes in (
        ("plain", {"LOSS__ROBUST__NAME": "none"}),
        ("limit", {"LOSS__ROBUST__LAMBDA": 1e9}),
    ):
        cfg = config_for(picture_folder, tmp_path / name, SOLVER__EPOCHS=1, **changes)
        RetrievalTrainer(cfg).train()
        weights.append(load_checkpoint(tmp_path / name / LAST)["state_dict"])
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-5)


def test_accumulated_gradients_equal_one_large_forward(
    picture_folder: Path, tmp_path: Path
) -> None:
    weights = []
    for tuples in (1, 4):
        cfg = config_for(
            picture_folder,
            tmp_path / str(tuples),
            SOLVER__EPOCHS=1,
            SOLVER__TUPLES_PER_FORWARD=tuples,
            LOSS__ROBUST__NAME="none",
            **SCALE_MATTERS,
        )
        RetrievalTrainer(cfg).train()
        weights.append(load_checkpoint(tmp_path / str(tuples) / LAST)["state_dict"])
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-6)


def test_statistics_of_batch_norm_are_frozen_or_trained_as_asked(
    picture_folder: Path, tmp_path: Path
) -> None:
    changed = {}
    for mode in ("frozen", "train"):
        cfg = config_for(
            picture_folder,
            tmp_path / mode,
            MODEL__ARCHITECTURE="resnet18",
            MODEL__BATCH_NORM=mode,
            SOLVER__EPOCHS=1,
            MINING__NUM_QUERIES=4,
        )
        trainer = RetrievalTrainer(cfg)
        before = trainer.network.state_dict()["features.1.running_mean"].clone()
        affine = trainer.network.state_dict()["features.1.weight"].clone()
        trainer.train()
        after = trainer.network.state_dict()
        changed[mode] = not torch.equal(before, after["features.1.running_mean"])
        assert not torch.equal(affine, after["features.1.weight"])
    assert changed == {"frozen": False, "train": True}


def test_bad_settings_are_refused_before_training(picture_folder: Path, tmp_path: Path) -> None:
    def trainer(**changes: Any) -> RetrievalTrainer:
        return RetrievalTrainer(config_for(picture_folder, tmp_path, **changes))

    with pytest.raises(ValueError, match="BATCH_SIZE is 3, expected a multiple of 2"):
        trainer(SOLVER__BATCH_SIZE=3)
    with pytest.raises(ValueError, match="AMP is True, which needs a GPU"):
        trainer(SOLVER__AMP=True)
    with pytest.raises(ValueError, match="has 7 others; expected at least 9"):
        trainer(MINING__NEGATIVES=9)
    with pytest.raises(ValueError, match="unknown data set 'picturse'"):
        trainer(DATASETS__TRAIN="picturse")
    with pytest.raises(ValueError, match=r"BEST_BY is 'luck', expected one of map, loss"):
        trainer(VALIDATION__BEST_BY="luck")
    with pytest.raises(ValueError, match=r"MINING.NUM_QUERIES is 0, expected at least 1"):
        trainer(MINING__NUM_QUERIES=0)
    with pytest.raises(ValueError, match=r"DATASETS.FOLDERS has the entry \['x'\], expected"):
        register_datasets(load_config(None, ["DATASETS.FOLDERS", "[['x']]"]))
    assert not list(tmp_path.iterdir())


def test_a_finished_folder_is_not_overwritten_and_another_training_not_mixed_in(
    whole_run: Path, picture_folder: Path
) -> None:
    process = run_tool(options_for(picture_folder, whole_run))
    text, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert b"holds a training already; --resume" in text
    assert b"Traceback" not in text
    folders = f"[['pictures', '{picture_folder}']]"
    for changes, message in (
        ({"MODEL__ARCHITECTURE": "alexnet"}, r"ARCHITECTURE \(was 'squeezenet1_1', is 'alexnet'\)"),
        ({"SOLVER__BASE_LR": 1e-3}, r"SOLVER.BASE_LR \(was 0.0001, is 0.001\)"),
        ({"DATASETS__TRAIN": "pictures_sym20_s0"}, "other images or labels than pictures_sym20_s0"),
    ):
        other = config_for(picture_folder, whole_run, **changes)
        other.defrost()
        other.DATASETS.FOLDERS = load_config(None, ["DATASETS.FOLDERS", folders]).DATASETS.FOLDERS
        with pytest.raises(ValueError, match=message):
            RetrievalTrainer(other).resume()


def test_evaluation_alone_takes_a_checkpoint_and_refuses_random_weights(
    whole_run: Path, picture_folder: Path, tmp_path: Path
) -> None:
    before = json.loads((whole_run / "results.json").read_text())
    for more in (["--eval-only", "--resume"], ["--eval-only"]):
        weights = {} if "--resume" in more else {"MODEL__WEIGHTS": whole_run / BEST}
        output = whole_run if "--resume" in more else tmp_path
        finished(run_tool([*more, *options_for(picture_folder, output, **weights)]))
        found = json.loads((output / "results.json").read_text())
        assert found["pictures"]["all"]["map"] == before["pictures"]["all"]["map"]
    process = run_tool(["--eval-only", *options_for(picture_folder, tmp_path)])
    text, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert b"MODEL.WEIGHTS is none, expected a checkpoint to evaluate" in text


def test_a_finished_warm_up_is_not_repeated(
    picture_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a kill in the first epoch: only the warm-up's file is there."""
    weights = []
    for name in ("whole", "resumed"):
        changes = {"WARMUP__EPOCHS": 1, "WARMUP__BATCH_SIZE": 12, "SOLVER__EPOCHS": 1}
        trainer = RetrievalTrainer(config_for(picture_folder, tmp_path / name, **changes))
        if name == "resumed":
            (tmp_path / name).mkdir()
            (tmp_path / "whole" / WARM).rename(tmp_path / name / WARM)
            trainer.resume()
            caplog.clear()
        with caplog.at_level("INFO"):
            trainer.train()
        assert ("warm-up 1/1" in caplog.text) == (name == "whole")
        weights.append(load_checkpoint(tmp_path / name / LAST)["state_dict"])
    torch.testing.assert_close(*weights, rtol=0, atol=0)

"""The trainer's laws: resumed equals uninterrupted, two processes equal one, and limits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from sl_bench.checkpoint import load_checkpoint
from sl_bench.config import load_config
from sl_bench.engine import LAST, BenchTrainer
from sl_bench.learner import Learner

# A small part of the digits; 4 steps of 50 in an epoch.
SMALL = {
    "DATASET.TRAIN_SIZE": 220,
    "DATASET.TEST_SIZE": 100,
    "NOISE.KIND": "sym",
    "NOISE.RATE": 0.4,
    "SOLVER.BATCH_SIZE": 50,
    "SOLVER.BASE_LR": 0.05,
    "SOLVER.EPOCHS": 3,
}
METHODS: dict[str, dict[str, Any]] = {
    "superloss": {"LOSS.NAME": "superloss", "LOSS.LAMBDA": "auto", "DATASET.AUGMENT": "crop_flip"},
    "data_params": {
        "LOSS.NAME": "data_params",
        "LOSS.DATA_PARAMS_LR": 5.0,
        "LOSS.DATA_PARAMS_CLASS_LR": 0.5,
    },
    "regression": {
        "TASK": "regression",
        "NOISE.KIND": "uniform",
        "LOSS.INPUT": "smooth_l1",
        "LOSS.NAME": "superloss",
        "SOLVER.OPTIMIZER": "adam",
        "SOLVER.BASE_LR": 0.002,
    },
}


def trainer_of(output: Path, *changes: dict[str, Any]) -> BenchTrainer:
    options: dict[str, Any] = {}
    for change in (SMALL, *changes):
        options |= change
    flat = [str(part) for item in options.items() for part in item]
    return BenchTrainer(load_config(None, [*flat, "OUTPUT_DIR", str(output)]))


def state_of(folder: Path) -> dict[str, Any]:
    """Everything that was learned and measured, without times and the config."""
    state = load_checkpoint(folder / LAST)
    del state["identity"]
    for row in state["history"]:
        del row["seconds"]
    return state


def assert_close(one: Any, two: Any, rtol: float, atol: float) -> None:
    torch.testing.assert_close(one, two, rtol=rtol, atol=atol, equal_nan=True)


class Killed(Exception):
    pass


def train_and_die(trainer: BenchTrainer, at_step: int, patch: pytest.MonkeyPatch) -> None:
    """Train until the step with this number, which dies before it began."""
    steps, original = 0, Learner.step

    def step(self: Learner, *arguments: Any) -> Tensor:
        nonlocal steps
        steps += 1
        if steps == at_step:
            raise Killed
        return original(self, *arguments)

    with patch.context() as context:
        context.setattr(Learner, "step", step)
        with pytest.raises(Killed):
            trainer.train()


@pytest.mark.parametrize(
    "change",
    [
        METHODS["superloss"] | {"MODEL.DROPOUT": 0.3, "SOLVER.SCHEDULE": "cosine"},
        METHODS["data_params"] | {"CORRECTION.ROUNDS": 1, "SOLVER.EPOCHS": 2},
        METHODS["regression"],
        {"MODEL.NAME": "resnet20", "SOLVER.ITERATIONS": 9, "LOSS.NAME": "gce_trunc"},
    ],
    ids=["superloss", "data_params", "regression", "resnet20"],
)
def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trainer_of(tmp_path / "whole", change).train()
    train_and_die(trainer_of(tmp_path / "parts", change), 7, monkeypatch)
    # The generators' state at a resume must not matter.
    torch.manual_seed(99)
    resumed = trainer_of(tmp_path / "parts", change)
    resumed.resume()
    assert len(resumed.history) == 1
    result = resumed.train()
    assert_close(state_of(tmp_path / "parts"), state_of(tmp_path / "whole"), rtol=0, atol=0)
    for some in (whole, result):
        for row in (some, *some.get("before_correction", [])):
            del row["seconds"]
    assert repr(whole) == repr(result)


def test_a_resume_at_the_correction_goes_on_with_the_corrected_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = {"CORRECTION.ROUNDS": 1, "SOLVER.EPOCHS": 2, "LOSS.NAME": "superloss"}
    trainer_of(tmp_path / "whole", change).train()
    # Step 9 is the first of the second training: nothing of it is in the checkpoint yet.
    train_and_die(trainer_of(tmp_path / "parts", change), 9, monkeypatch)
    resumed = trainer_of(tmp_path / "parts", change)
    resumed.resume()
    assert resumed.corrections == []
    resumed.train()
    assert_close(state_of(tmp_path / "parts"), state_of(tmp_path / "whole"), rtol=0, atol=0)


def test_a_correction_retrains_a_new_network_on_the_predictions(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path / "a", {"CORRECTION.ROUNDS": 1})
    first = trainer_of(tmp_path / "b")
    first.train()
    predictions = first.evaluation.training_outputs(first.learner.network).argmax(-1).numpy()
    trained = first.learner.network.state_dict()
    first._correct_labels()
    assert first.learner.optimizer.state_dict()["state"] == {}
    for key, tensor in first.learner.network.state_dict().items():
        assert not torch.equal(tensor, trained[key]), f"{key} is not new"
    result = trainer.train()
    np.testing.assert_array_equal(trainer.learner.targets, predictions)
    (before,) = result["before_correction"]
    right = 100 * np.mean(predictions == trainer.data.clean_targets)
    assert before["correction"]["right_labels_after"] == pytest.approx(right)
    assert before["correction"]["right_labels_before"] == pytest.approx(60.0)
    assert [row["round"] for row in trainer.history] == [0, 0, 0, 1, 1, 1]
    assert result["noise"]["wrong"] == round(0.4 * 220)
    unsure = trainer_of(tmp_path / "c", {"CORRECTION.ROUNDS": 1, "CORRECTION.MIN_PROBABILITY": 1.0})
    assert unsure.train()["before_correction"][0]["correction"]["labels_changed"] == 0


def parameters_after(output: Path, *changes: dict[str, Any]) -> Tensor:
    trainer = trainer_of(output, *changes)
    trainer.train()
    return torch.cat([p.detach().flatten() for p in trainer.learner.network.parameters()])


def test_superloss_with_a_huge_lambda_is_the_plain_training(tmp_path: Path) -> None:
    plain = parameters_after(tmp_path / "plain")
    limit = parameters_after(tmp_path / "limit", {"LOSS.NAME": "superloss", "LOSS.LAMBDA": 1e9})
    other = parameters_after(tmp_path / "other", {"LOSS.NAME": "superloss", "LOSS.LAMBDA": 1.0})
    assert_close(limit, plain, rtol=1e-3, atol=1e-5)
    assert (other - plain).abs().max() > 1e-2


def test_losses_that_coincide_give_the_same_training(tmp_path: Path) -> None:
    plain = parameters_after(tmp_path / "plain")
    changes: dict[str, dict[str, Any]] = {
        "cce": {"LOSS.NAME": "cce"},
        "gce": {"LOSS.NAME": "gce", "LOSS.Q": 0.0},
        "focal": {"LOSS.INPUT": "focal", "LOSS.FOCAL_GAMMA": 0.0},
        "frozen": {"LOSS.NAME": "data_params", "LOSS.DATA_PARAMS_LR": 0.0},
    }
    for name, change in changes.items():
        assert_close(parameters_after(tmp_path / name, change), plain, rtol=1e-3, atol=1e-5)


def train_on_one_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    for name, change in METHODS.items():
        trainer_of(Path(folder) / name, change).train()
    for change, message in (
        ({"MODEL.NAME": "resnet20"}, "MODEL.NAME is resnet20, whose batch norm"),
        ({"SOLVER.BATCH_SIZE": 25}, "SOLVER.BATCH_SIZE is 25, expected a multiple of 2"),
    ):
        with pytest.raises(ValueError, match=message):
            trainer_of(Path(folder) / "refused", change)
    dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path: Path) -> None:
    two = tmp_path / "two"
    two.mkdir()
    mp.spawn(train_on_one_rank, args=(str(two),), nprocs=2)
    for name, change in METHODS.items():
        trainer_of(tmp_path / name, change).train()
        assert_close(state_of(two / name), state_of(tmp_path / name), rtol=2e-3, atol=2e-5)


def test_the_results_are_written_and_agree(tmp_path: Path) -> None:
    change = {"LOSS.NAME": "superloss", "SOLVER.EPOCHS": 12, "DATASET.VALIDATION": 0.2}
    trainer = trainer_of(tmp_path, change, {"TRAIN_EVAL_PERIOD": 5, "EVAL_PERIOD": 4})
    result = trainer.train()
    assert json.loads((tmp_path / "result.json").read_text()) == result
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert [row["epoch"] for row in metrics if "test_accuracy" in row] == [3, 7, 11]
    assert [row["epoch"] for row in metrics if "fit_of_wrong_labels" in row] == [4, 9, 11]
    assert result["test_accuracy_final"] == metrics[-1]["test_accuracy"]
    assert result["test_accuracy_best"] == max(r.get("test_accuracy", 0) for r in metrics)
    wrong = trainer.data.is_wrong
    parts = wrong.mean() * result["fit_of_wrong_labels"]
    parts += (1 - wrong.mean()) * result["fit_of_right_labels"]
    assert parts == pytest.approx(result["train_accuracy_given"])
    rows = json.loads((tmp_path / "label_confidence.json").read_text())
    assert sorted(row["image"] for row in rows) == sorted(trainer.data.train.ids.tolist())
    assert sum(row["is_wrong"] for row in rows) == wrong.sum() == result["noise"]["wrong"]
    found = sum(row["is_wrong"] for row in rows[: wrong.sum()]) / wrong.sum()
    assert result["wrong_among_least_confident"] == pytest.approx(100 * found)
    assert [row["confidence"] for row in rows] == sorted(row["confidence"] for row in rows)
    assert len(trainer.learner.targets) == 176


def test_superloss_finds_the_wrong_labels_and_does_not_learn_them(tmp_path: Path) -> None:
    """All digits; the least believed labels would be wrong ones in 40 of 100 by chance."""
    every = {"DATASET.TRAIN_SIZE": 0, "DATASET.TEST_SIZE": 0, "SOLVER.EPOCHS": 10}
    loss = {"LOSS.NAME": "superloss", "LOSS.LAMBDA": 0.25}
    result = trainer_of(tmp_path, every, loss).train()
    assert result["wrong_among_least_confident"] > 85
    assert result["fit_of_wrong_labels"] < 30 < 85 < result["fit_of_right_labels"]


def test_a_checkpoint_of_another_run_is_refused_but_more_epochs_are_not(tmp_path: Path) -> None:
    trainer_of(tmp_path, {"SOLVER.EPOCHS": 1}).train()
    for change, message in (
        ({"LOSS.NAME": "gce"}, "other settings: LOSS.NAME .was 'none', is 'gce'."),
        ({"SEED": 1}, "trained on other labels"),
        ({"SEED": 1, "NOISE.SEED": 0}, "SEED .was 0, is 1."),
    ):
        with pytest.raises(ValueError, match=message):
            trainer_of(tmp_path, change).resume()
    longer = trainer_of(tmp_path, {"SOLVER.EPOCHS": 2})
    longer.resume()
    assert longer.train()["epochs"] == 2
    whole = trainer_of(tmp_path / "whole", {"SOLVER.EPOCHS": 2})
    whole.train()
    assert_close(
        longer.learner.state()["network"], whole.learner.state()["network"], rtol=0, atol=0
    )
    with pytest.raises(ValueError, match=r"EPOCHS .was 2, is 3.*SCHEDULE"):
        trainer_of(tmp_path, {"SOLVER.EPOCHS": 3, "SOLVER.SCHEDULE": "cosine"}).resume()


def test_a_loss_that_is_not_finite_and_a_batch_that_is_too_large_stop_the_run(
    tmp_path: Path,
) -> None:
    with pytest.raises(FloatingPointError, match=r"SOLVER\.BASE_LR"):
        trainer_of(tmp_path, {"SOLVER.BASE_LR": 1e9}).train()
    with pytest.raises(ValueError, match=r"SOLVER\.BATCH_SIZE is 221, expected at most 220"):
        trainer_of(tmp_path, {"SOLVER.BATCH_SIZE": 221})

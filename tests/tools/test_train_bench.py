"""The command line of the bench: a real kill, a resume, an evaluation, clear messages."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tools import train_bench

ROOT = Path(__file__).parents[2]
OPTIONS = [
    *("DATASET.TRAIN_SIZE", "300", "DATASET.TEST_SIZE", "100", "SOLVER.BATCH_SIZE", "20"),
    *("NOISE.KIND", "sym", "NOISE.RATE", "0.4", "LOSS.NAME", "superloss", "SOLVER.BASE_LR", "0.02"),
]


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "tools/train_bench.py", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def killed_and_resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 epochs that is killed when the first of them are done, and goes on."""
    output = tmp_path_factory.mktemp("bench") / "run"
    arguments = [*OPTIONS, "SOLVER.EPOCHS", "40", "OUTPUT_DIR", str(output)]
    process = start(*arguments)
    deadline = time.monotonic() + 120
    while not (output / "model_last.pth").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert not (output / "result.json").exists(), "killed too late to show anything"
    train_bench.main(None, arguments, resume=True)
    return output


def test_a_killed_run_goes_on_to_the_end_as_if_nothing_was(
    killed_and_resumed: Path, tmp_path: Path
) -> None:
    whole = [*OPTIONS, "SOLVER.EPOCHS", "40", "OUTPUT_DIR", str(tmp_path / "whole")]
    train_bench.main(None, whole)
    networks = [
        torch.load(folder / "model_last.pth", weights_only=True)["network"]
        for folder in (killed_and_resumed, tmp_path / "whole")
    ]
    torch.testing.assert_close(*networks, rtol=0, atol=0)
    result = json.loads((killed_and_resumed / "result.json").read_text())
    assert result["epochs"] == 40 and result["noise"]["wrong"] == 120


@pytest.mark.parametrize("resume", [False, True])
def test_an_evaluation_gives_the_final_accuracy(
    killed_and_resumed: Path, tmp_path: Path, resume: bool
) -> None:
    weights = ["MODEL.WEIGHTS", str(killed_and_resumed / "model_last.pth")]
    output = killed_and_resumed if resume else tmp_path
    options = [*OPTIONS, "SOLVER.EPOCHS", "40", "OUTPUT_DIR", str(output)]
    train_bench.main(None, options + ([] if resume else weights), resume, eval_only=True)
    evaluation = json.loads((output / "evaluation.json").read_text())
    result = json.loads((killed_and_resumed / "result.json").read_text())
    for key in ("fit_of_wrong_labels", "fit_of_right_labels", "hybrid_accuracy"):
        assert evaluation[key] == result[key]
    assert evaluation["test_accuracy"] == result["test_accuracy_final"]


def test_bad_input_gives_one_line(tmp_path: Path) -> None:
    process = start("SOLVER.BATCH_SIZE", "0", "OUTPUT_DIR", str(tmp_path))
    _, error = process.communicate(timeout=120)
    assert process.returncode == 1
    assert error == "error: SOLVER.BATCH_SIZE is 0, expected at least 1\n"


def test_a_run_is_not_overwritten_and_nothing_is_not_evaluated(
    killed_and_resumed: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="holds a run already; --resume goes on"):
        train_bench.main(None, [*OPTIONS, "OUTPUT_DIR", str(killed_and_resumed)])
    for resume, message in ((False, "MODEL.WEIGHTS is none"), (True, "does not exist")):
        with pytest.raises(ValueError, match=message):
            train_bench.main(None, ["OUTPUT_DIR", str(tmp_path)], resume, eval_only=True)

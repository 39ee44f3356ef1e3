"""tools/train_net.py as a user runs it: results, kill -9, resume, evaluation of a checkpoint."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from sl_detectron.checkpoint import AtomicCheckpointer

ROOT = Path(__file__).parents[2]
MAX_ITER = 30
CHECKPOINT_PERIOD = 5


def call(
    output: Path, *extra: Any, config: str = "digits_faster_rcnn_R_18_FPN_grouped"
) -> list[str]:
    options = {
        "OUTPUT_DIR": output,
        "DATASETS.TRAIN": "('digits_train_sym40_s0',)",
        "SOLVER.IMS_PER_BATCH": 2,
        "SOLVER.MAX_ITER": MAX_ITER,
        "SOLVER.STEPS": "(20,)",
        "SOLVER.CHECKPOINT_PERIOD": CHECKPOINT_PERIOD,
    }
    file = ROOT / "configs" / "detection" / f"{config}.yaml"
    flags = [item for item in extra if str(item).startswith("--")]
    more = [str(item) for item in extra if not str(item).startswith("--")]
    pairs = [str(item) for pair in options.items() for item in pair]
    program = [sys.executable, str(ROOT / "tools" / "train_net.py")]
    return [*program, "--config-file", str(file), *flags, *pairs, *more]


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def run(arguments: list[str], succeeds: bool = True) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment())
    assert (done.returncode == 0) == succeeds, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def last_checkpoint(output: Path) -> dict[str, Any]:
    name = (output / "last_checkpoint").read_text()
    content: dict[str, Any] = torch.load(output / name, weights_only=False)
    return content


def superloss_state(checkpoint: dict[str, Any], name: str) -> torch.Tensor:
    (key,) = (k for k in checkpoint["model"] if k.endswith(f"classification_weighting.loss.{name}"))
    tensor: torch.Tensor = checkpoint["model"][key]
    return tensor


@pytest.mark.parametrize("detector", ["faster_rcnn", "retinanet"])
def test_a_killed_training_resumes_with_thresholds_and_confidences(
    tmp_path: Path, detector: str
) -> None:
    config = f"digits_{detector}_R_18_FPN_grouped"
    process = subprocess.Popen(
        call(tmp_path, config=config),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    marker = tmp_path / "last_checkpoint"
    deadline = time.monotonic() + 240
    while not marker.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = last_checkpoint(tmp_path)
    assert before["iteration"] < MAX_ITER - 1, "killed too late to say anything"
    assert superloss_state(before, "steps").item() == before["iteration"] + 1
    # What a kill in the middle of saving leaves behind is never referred to.
    (tmp_path / "model_0000028.pth").write_bytes(b"half of a checkpoint")

    printed = run(call(tmp_path, "--resume", config=config))

    after = last_checkpoint(tmp_path)
    assert after["iteration"] == MAX_ITER - 1
    assert superloss_state(after, "steps").item() == MAX_ITER, "no step lost, none twice"
    count = superloss_state(after, "count").sum().item()
    assert count > superloss_state(before, "count").sum().item() > 0
    recorded = after["annotation_confidence"]["sums"][:, 0].sum().item()
    assert recorded == count, "every foreground box that entered tau belongs to an annotation"
    if detector == "retinanet":
        assert before["model"]["_extra_state"].item() != 100
    results = json.loads((tmp_path / "results.json").read_text())
    assert {"AP", "AP50", "AP75"} <= set(results["bbox"])
    assert "annotations are wrong, digest" in printed
    rows = json.loads((tmp_path / "annotation_confidence.json").read_text())
    confidences = [row["confidence"] for row in rows]
    assert confidences == sorted(confidences)
    assert {True, False} == {row["wrong"] for row in rows}
    scalars = (tmp_path / "metrics.json").read_text()
    tau = "sl/tau_mean" if detector == "faster_rcnn" else "sl/tau_all"
    for name in (tau, "sl/confidence_fg_mean", "sl/confidence_wrong_labels"):
        assert name in scalars

    evaluated = tmp_path / "evaluated"
    weights = ("MODEL.WEIGHTS", tmp_path / "model_final.pth")
    run(call(evaluated, "--eval-only", *weights, config=config))
    assert json.loads((evaluated / "results.json").read_text()) == results


def test_the_name_of_the_last_checkpoint_is_written_in_one_step(tmp_path: Path) -> None:
    """An empty file, as a kill between opening and writing leaves it, could not be resumed."""
    checkpointer = AtomicCheckpointer(torch.nn.Linear(1, 1), str(tmp_path))
    checkpointer.save("first")
    inode = (tmp_path / "last_checkpoint").stat().st_ino
    checkpointer.save("second")
    assert checkpointer.get_checkpoint_file() == str(tmp_path / "second.pth")
    assert (tmp_path / "last_checkpoint").stat().st_ino != inode, "replaced, not written over"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "first.pth",
        "last_checkpoint",
        "second.pth",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("DATASETS.TRAIN", "('digits_tarin_sym40_s0',)"), "'digits_tarin' is not a registered"),
        (("MODEL.ROBUST_LOSS.CLS.NAME", "focal"), "CLS.NAME is 'focal', expected one of none"),
        (("SOLVER.OPTIMIZER", "lamb"), "SOLVER.OPTIMIZER is 'lamb', expected sgd or adamw"),
        (("DATASETS.VOC_STYLE", "[['a', 'b']]"), r"expected [name, folder, split, [class, ...]]"),
    ],
)
def test_bad_options_stop_at_once_with_a_message(
    tmp_path: Path, options: tuple[str, str], message: str
) -> None:
    assert message in run(call(tmp_path, *options), succeeds=False)

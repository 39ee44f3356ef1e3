"""The command line of the evaluation, on small pictures."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sl_retrieval.checkpoint import save_checkpoint
from sl_retrieval.network import build_network

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    for landmark in range(3):
        (root / str(landmark)).mkdir()
        for view in range(4):
            pixels = generator.integers(0, 80 * (landmark + 1), (48, 48, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(root / str(landmark) / f"{view}.png")
    return root


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    network = build_network("squeezenet1_1")
    whitening = {"m": np.zeros((512, 1)), "P": np.eye(512)}
    network.meta["Lw"] = {"some-set": {"ss": whitening}}
    file = tmp_path_factory.mktemp("network") / "network.pth.tar"
    save_checkpoint(file, network, epoch=1, min_loss=1.0, optimizer={})
    return file


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    tool = ROOT / "tools" / "eval_retrieval.py"
    call = [sys.executable, str(tool), *map(str, arguments), "--workers", "0", "--image-size", "48"]
    return subprocess.run(call, capture_output=True, text=True, timeout=300)


def test_a_folder_is_evaluated_with_distractors_that_it_described_itself(
    checkpoint: Path, pictures: Path, tmp_path: Path
) -> None:
    files = (tmp_path / "distractors.npy", tmp_path / "results.json")
    shared = ("--network", checkpoint, "--folders", f"mine={pictures}")
    done = run(*shared, "--describe", pictures / "2", files[0])
    assert done.returncode == 0, done.stderr
    assert np.load(files[0]).shape == (4, 512)
    maps = []
    for more in ((), ("--distractors", files[0]), ("--stored-whitening", "some-set")):
        done = run(*shared, "--datasets", "mine", "--output", files[1], *more)
        assert done.returncode == 0, done.stderr
        metrics = json.loads(files[1].read_text())["mine"]["all"]
        assert f"{100 * metrics['map']:.2f}" in done.stdout
        assert len(metrics["per_query"]["ap"]) == 12
        maps.append(metrics["map"])
    assert maps[1] < maps[0], "copies of a landmark's pictures are in the way"
    assert maps[2] == pytest.approx(maps[0]), "the identity whitens nothing"


def test_the_table_of_queries_names_each_with_the_ap_of_the_json_file(
    checkpoint: Path, pictures: Path, tmp_path: Path
) -> None:
    shared = ("--network", checkpoint, "--folders", f"mine={pictures}", "--datasets", "mine")
    file = tmp_path / "results.json"
    done = run(
        *shared,
        "--learn-whitening",
        "mine",
        "--per-query",
        "--output",
        file,
        "--pictures",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine.png").exists()
    per_query = json.loads(file.read_text())["mine"]["all"]["per_query"]
    rows = [line.split("|")[1:3] for line in done.stdout.splitlines() if ".png |" in line]
    shown = {name.strip(): float(value) for name, value in rows}
    assert list(shown.values()) == sorted(shown.values())
    assert set(shown) == {f"{landmark}/{view}.png" for landmark in range(3) for view in range(4)}
    for name, ap in zip(per_query["query"], per_query["ap"], strict=True):
        assert shown[name] == pytest.approx(100 * ap, abs=0.006)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--network", "missing.pth.tar"), "missing.pth.tar"),
        (("--dimensions", "4"), "--dimensions needs a whitening"),
        (("--stored-whitening", "other"), "some-set (ss), expected other (ss)"),
        (("--pca-whitening", "a", "--learn-whitening", "b"), "more than one whitening"),
        (("--datasets", "roxford5k"), "gnd_roxford5k.pkl"),
        (("--distractors", "missing.npy"), "missing.npy"),
    ],
)
def test_bad_arguments_give_one_message(
    checkpoint: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run("--network", checkpoint, "--datasets", "procedural_val", *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr

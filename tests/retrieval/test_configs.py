"""Every YAML builds its parts and trains a step; every key is read; nothing in a YAML is run."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fvcore.common.config import CfgNode

from sl_core import SuperLoss
from sl_retrieval.build import build_criterion, build_network_from
from sl_retrieval.config import get_cfg, load_config
from sl_retrieval.extraction import describe_images
from sl_retrieval.solver import build_optimizer

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs" / "retrieval").glob("*.yaml"))
LEAVES = [file for file in CONFIGS if not file.stem.startswith("base_")]


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_yaml_builds_its_parts_and_trains_a_step(file: Path) -> None:
    cfg = load_config(file, ["MODEL.WEIGHTS", "none", "MODEL.DEVICE", "cpu"])
    network, criterion = build_network_from(cfg), build_criterion(cfg)
    solver = cfg.SOLVER
    optimizer = build_optimizer(
        network, solver.OPTIMIZER, solver.BASE_LR, solver.WEIGHT_DECAY, solver.MOMENTUM
    )
    width = 2 + cfg.MINING.NEGATIVES
    images = [torch.rand(3, 48, 48) for _ in range(width)]
    label = torch.tensor([-1.0, 1.0] + [0.0] * cfg.MINING.NEGATIVES)
    criterion(describe_images(network, images), label).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    optimizer.step()
    assert isinstance(criterion.robust, SuperLoss) == ("superloss" in file.stem)


def test_leaves_write_to_folders_of_their_own_and_are_described() -> None:
    readme = (ROOT / "configs" / "README.md").read_text(encoding="utf-8")
    assert len(LEAVES) >= 6
    for file in LEAVES:
        assert f"output/retrieval/{file.stem}" == load_config(file, []).OUTPUT_DIR
        assert f"`{file.stem}`" in readme


def test_the_papers_settings_are_those_of_its_text() -> None:
    """superloss_supplementary.txt, section 3.4."""
    by_name = {file.stem: load_config(file, []) for file in LEAVES}
    for name in ("landmarks_clean_default", "landmarks_full_default", "landmarks_full_superloss"):
        cfg = by_name[name]
        assert (cfg.SOLVER.BASE_LR, cfg.SOLVER.WEIGHT_DECAY, cfg.SOLVER.EPOCHS) == (1e-6, 1e-6, 100)
        assert (cfg.MINING.NUM_QUERIES, cfg.MINING.POOL_SIZE, cfg.MINING.NEGATIVES) == (
            2000,
            20000,
            5,
        )
        assert pytest.approx(1) == cfg.SOLVER.DECAY * cfg.SOLVER.EPOCHS
    tuned = by_name["landmarks_full_retuned"]
    assert (tuned.SOLVER.BASE_LR, tuned.SOLVER.EPOCHS) == (1e-5, 200)
    assert (tuned.MINING.NUM_QUERIES, tuned.MINING.POOL_SIZE) == (200, 500)
    assert pytest.approx(1) == tuned.SOLVER.DECAY * tuned.SOLVER.EPOCHS
    robust = by_name["landmarks_full_superloss"].LOSS.ROBUST
    assert (robust.NAME, robust.TAU, robust.LAMBDA) == ("superloss", "avg", 0.05)


def keys_of(node: CfgNode, prefix: str = "") -> list[str]:
    found: list[str] = []
    for key, value in node.items():
        found += keys_of(value, f"{prefix}{key}.") if isinstance(value, CfgNode) else [prefix + key]
    return found


def test_every_key_is_read_by_something() -> None:
    sources = [*(ROOT / "sl_retrieval").glob("*.py"), ROOT / "tools" / "train_retrieval.py"]
    text = "\n".join(
        f.read_text(encoding="utf-8") for f in sources if f.stem not in ("config", "metric_config")
    )
    for key in keys_of(get_cfg()):
        section, _, last = key.rpartition(".")
        # A section may be given a short name, as in ``mining = cfg.MINING``.
        short = rf"(cfg\.{section}|{section.rsplit('.')[-1].lower()}|options)" if section else "cfg"
        assert re.search(rf"{short}\.{last}\b", text), key


def test_a_word_may_become_a_number_and_back_on_the_command_line() -> None:
    file = ROOT / "configs" / "retrieval" / "landmarks_full_superloss.yaml"
    options = ["LOSS.ROBUST.TAU", "0.3", "LOSS.ROBUST.LAMBDA", "auto", "LOSS.MARGIN", "0.85"]
    cfg = load_config(file, options)
    robust = build_criterion(cfg).robust
    assert isinstance(robust, SuperLoss)
    assert robust.tau.tolist() == pytest.approx([0.3, 0.3])
    assert robust.lam is None


def test_a_yaml_that_would_run_code_is_refused(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    file = tmp_path / "bad.yaml"
    file.write_text(f"OUTPUT_DIR: !!python/object/apply:os.mkdir ['{planted}']\n")
    with pytest.raises(ValueError, match=r"bad\.yaml.*"):
        load_config(file, [])
    assert not planted.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["SOLVER.EPOCHS", "0"], "SOLVER.EPOCHS and WARMUP.EPOCHS are 0"),
        (["MODEL.BATCH_NORM", "warm"], "'warm', expected one of frozen, train"),
        (["LOSS.ROBUST.TAU_SCOPE", "each"], "'each', expected one of kind, all"),
        (["VALIDATION.BEST_BY", "loss", "DATASETS.VAL", ""], "needs DATASETS.VAL"),
        (["LOSS.MARGIN", "abc"], "LOSS.MARGIN is 'abc', expected a number above 0"),
        (["TEST.SCALES", "[]"], "expected one or more numbers above 0"),
        (["SEED"], "expected pairs of key and value"),
    ],
)
def test_bad_values_are_named(options: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_config(None, options)


@pytest.mark.parametrize("key", ["SOLVER.EPOCH", "MODEL.BACKBONE"])
def test_unknown_keys_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        load_config(None, [key, "1"])


def test_options_reach_the_robust_loss() -> None:
    made: dict[str, Any] = {}
    for name in ("none", "superloss", "cce", "mae", "gce", "gce_trunc"):
        made[name] = build_criterion(load_config(None, ["LOSS.ROBUST.NAME", name]))
    assert made["superloss"].robust.policy == "avg"
    assert made["superloss"].robust.lam == pytest.approx(0.05)
    assert made["gce_trunc"].robust.loss.options == {"q": 0.7, "k": 0.5}

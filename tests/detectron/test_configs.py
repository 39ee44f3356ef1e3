"""Every YAML builds its model and trains a step; every key of the plugin is read somewhere."""

import re
from pathlib import Path

import pytest
import torch
from detectron2.config import CfgNode, get_cfg

from sl_detectron import add_robust_loss_config, merge_options
from tests.detectron.small_models import build, images, losses_and_gradients

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs" / "detection").glob("*.yaml"))


def load(file: Path) -> CfgNode:
    cfg = get_cfg()
    add_robust_loss_config(cfg)
    cfg.merge_from_file(str(file))
    return cfg


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_yaml_builds_its_model_and_trains_a_step(file: Path) -> None:
    cfg = load(file)
    cfg.MODEL.DEVICE, cfg.MODEL.WEIGHTS = "cpu", ""
    cfg.MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE = 8
    model = build(cfg)
    losses, gradients = losses_and_gradients(model, images((2,)))
    assert all(value.isfinite() for value in losses.values())
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert set(gradients) == trained, "distributed training needs a gradient for every parameter"
    assert all(value.isfinite().all() for value in gradients.values())
    is_stock = file.stem.startswith("base_") or file.stem.endswith("_baseline")
    assert (cfg.MODEL.ROBUST_LOSS.CLS.NAME == "none") == is_stock


def test_leaves_write_to_folders_of_their_own() -> None:
    leaves = [file for file in CONFIGS if not file.stem.startswith("base_")]
    assert len(leaves) >= 20
    for file in leaves:
        assert f"output/detection/{file.stem}" == load(file).OUTPUT_DIR


def test_every_file_is_described_in_the_readme() -> None:
    readme = (ROOT / "configs" / "README.md").read_text(encoding="utf-8")
    for file in (ROOT / "configs" / "detection" / "methods").glob("*.yaml"):
        assert f"`{file.stem}`" in readme
    for file in CONFIGS:
        if file.stem.startswith("base_"):
            assert f"`{file.stem.removeprefix('base_')}`" in readme


def test_every_key_of_the_plugin_is_read_by_something() -> None:
    stock, cfg = get_cfg(), get_cfg()
    add_robust_loss_config(cfg)
    node = cfg.MODEL.ROBUST_LOSS
    keys = {"RECORD_ANNOTATIONS", *node.CLS, *node.BOX}
    keys |= (set(cfg.SOLVER) - set(stock.SOLVER)) | (set(cfg.DATASETS) - set(stock.DATASETS))
    assert len(keys) > 10
    sources = [f.read_text() for f in (ROOT / "sl_detectron").glob("*.py") if f.stem != "config"]
    for key in keys:
        assert any(re.search(rf"\.{key}\b", source) for source in sources), key


def test_the_command_line_may_give_a_number_or_a_word() -> None:
    for value in (0.5, "auto"):
        for method in ("baseline", "grouped"):
            cfg = load(ROOT / f"configs/detection/digits_faster_rcnn_R_18_FPN_{method}.yaml")
            merge_options(cfg, ["MODEL.ROBUST_LOSS.CLS.LAMBDA", str(value), "SEED", "3"])
            assert value == cfg.MODEL.ROBUST_LOSS.CLS.LAMBDA
            assert cfg.SEED == 3
    with pytest.raises((KeyError, AssertionError), match="LAMDA"):
        cfg.merge_from_list(["MODEL.ROBUST_LOSS.CLS.LAMDA", 1.0])


def test_a_users_own_config_needs_one_name_and_one_node() -> None:
    from detectron2.model_zoo import get_config_file

    cfg = get_cfg()
    add_robust_loss_config(cfg)
    cfg.merge_from_file(get_config_file("COCO-Detection/faster_rcnn_R_50_FPN_1x.yaml"))
    cfg.merge_from_list(
        ["MODEL.ROI_HEADS.NAME", "RobustROIHeads", "MODEL.ROBUST_LOSS.CLS.NAME", "superloss"]
    )
    cfg.merge_from_list(["MODEL.DEVICE", "cpu", "MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE", 8])
    model = build(cfg)
    losses, _ = losses_and_gradients(model, images((2,)))
    assert torch.stack(list(losses.values())).isfinite().all()

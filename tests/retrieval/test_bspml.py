"""The metric trainer on small pictures: what it learns and writes, resume, configs, data sets."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fvcore.common.config import CfgNode
from PIL import Image

from sl_core import SuperLoss
from sl_retrieval import catalog
from sl_retrieval.bspml import LAST, MetricTrainer, load_embedding_network
from sl_retrieval.builders import from_folders
from sl_retrieval.embedding_network import build_embedding_network
from sl_retrieval.metric_config import get_metric_cfg, load_metric_config
from sl_retrieval.metric_datasets import from_halves, from_two_levels
from sl_retrieval.metric_methods import METHODS, build_method
from sl_retrieval.square_images import SquareImages
from sl_retrieval.state_files import read_state_file

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs" / "retrieval" / "metric").glob("*.yaml"))
OPTIONS = {
    "MODEL.ARCHITECTURE": "convnet4",
    "MODEL.EMBEDDING": "16",
    "MODEL.WEIGHTS": "none",
    "MODEL.BATCH_NORM": "train",
    "MODEL.DEVICE": "cpu",
    "LOSS.BASE": "0.5",
    "DATASETS.TRAIN": "metric_pictures_sym20_s0",
    "DATASETS.TEST": "metric_pictures",
    "INPUT.IMAGE_SIZE": "24",
    "INPUT.AUGMENT": "none",
    "SAMPLER.CLASSES": "4",
    "SAMPLER.PER_CLASS": "3",
    "SELF_PACED.PASSES": "10",
    "SOLVER.OPTIMIZER": "adam",
    "SOLVER.BASE_LR": "1e-3",
    "SOLVER.EPOCHS": "3",
    "SOLVER.STEPS_PER_EPOCH": "4",
    "TEST.PERIOD": "2",
    "DATALOADER.NUM_WORKERS": "0",
}


def config_for(folder: Path, output: Path, **changes: Any) -> CfgNode:
    if "metric_pictures" not in catalog.names():
        catalog.register("metric_pictures", lambda: from_folders("metric_pictures", folder))
    options = OPTIONS | {"OUTPUT_DIR": str(output)}
    options |= {key.replace("__", "."): str(value) for key, value in changes.items()}
    return load_metric_config(None, [text for pair in options.items() for text in pair])


def trained(folder: Path, output: Path, resume: bool = False, **changes: Any) -> dict[str, Any]:
    """The last checkpoint, without what says where and how long."""
    trainer = MetricTrainer(config_for(folder, output, **changes))
    if resume:
        trainer.resume()
    trainer.train()
    state = read_state_file(output / LAST)
    for row in state["history"]:
        del row["seconds"]
    del state["identity"], state["meta"]
    return state


@pytest.mark.parametrize("method", METHODS)
def test_stopped_and_resumed_equals_undisturbed(
    method: str, picture_folder: Path, tmp_path: Path
) -> None:
    whole = trained(picture_folder, tmp_path / "whole", METHOD=method)
    for epochs, resume in ((1, False), (3, True)):
        parts = trained(
            picture_folder, tmp_path / "parts", resume, METHOD=method, SOLVER__EPOCHS=epochs
        )
    # The end of a shorter training is tested, that epoch of a longer one is not.
    parts["history"][0] = {k: v for k, v in parts["history"][0].items() if k in whole["history"][0]}
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)


def test_random_crops_do_not_depend_on_workers_or_interruption(
    picture_folder: Path, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {
        "INPUT__AUGMENT": "crop_flip",
        "SOLVER__EPOCHS": 2,
        "SOLVER__STEPS_PER_EPOCH": 2,
    }
    one = trained(picture_folder, tmp_path / "one", **changes)
    two = trained(picture_folder, tmp_path / "two", DATALOADER__NUM_WORKERS=1, **changes)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    plain = trained(picture_folder, tmp_path / "plain", **changes | {"INPUT__AUGMENT": "none"})
    assert plain["history"][0]["loss"] != one["history"][0]["loss"]


def test_images_in_memory_change_nothing(picture_folder: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"SOLVER__EPOCHS": 1}
    one = trained(picture_folder, tmp_path / "one", **changes)
    two = trained(picture_folder, tmp_path / "two", INPUT__IN_MEMORY=True, **changes)
    torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_a_training_learns_and_writes_what_it_promises(
    picture_folder: Path, tmp_path: Path
) -> None:
    cfg = config_for(picture_folder, tmp_path, SOLVER__STEPS_PER_EPOCH=15)
    untrained = MetricTrainer(cfg)
    before = untrained.evaluation.run(untrained.network)
    history = MetricTrainer(cfg).train()
    assert history[-1]["recall@1"] > before["recall@1"]
    assert json.loads((tmp_path / "history.json").read_text()) == history
    assert ["nmi" in row for row in history] == [False, True, True]
    for epoch, row in enumerate(history):
        assert {"loss", "maw", "sdaw", "age", "pair_cost", "weight_of_wrong"} <= set(row)
        assert row["age"] == pytest.approx(0.6 * 1.01**epoch)
        assert 0 <= row["maw"] <= 1
    rows = json.loads((tmp_path / "sample_weights.json").read_text())
    assert len(rows) == 48
    assert rows == sorted(rows, key=lambda row: (row["weight"], -row["pair_cost"]))
    assert sum(row["is_wrong"] for row in rows) == 10
    network = load_embedding_network(tmp_path / LAST)
    assert untrained.evaluation.run(network)["nmi"] == history[-1]["nmi"]


def test_the_first_epoch_of_the_self_paced_methods_is_plain_multi_similarity(
    picture_folder: Path, tmp_path: Path
) -> None:
    losses = [
        trained(picture_folder, tmp_path / method, METHOD=method, SOLVER__EPOCHS=1)["history"]
        for method in ("ms", "spms", "bspml")
    ]
    assert losses[1][0]["loss"] == pytest.approx(losses[0][0]["loss"], rel=1e-4)
    assert losses[2][0]["loss"] == losses[1][0]["loss"]
    assert losses[2][0]["sdaw"] < losses[1][0]["sdaw"], "balance lowers the spread"
    assert "maw" not in losses[0][0]


def test_an_older_age_keeps_more_samples(picture_folder: Path, tmp_path: Path) -> None:
    means = []
    for age in (0.2, 0.6, 1.5):
        changes: dict[str, Any] = {"SELF_PACED__AGE_START": age, "SELF_PACED__AGE_MAX": 2.0}
        state = trained(
            picture_folder,
            tmp_path / str(age),
            SELF_PACED__PASSES=60,
            SOLVER__EPOCHS=1,
            **changes,
        )
        means.append(state["history"][0]["maw"])
    assert means[0] < means[1] < means[2]


def test_resume_refuses_another_training(picture_folder: Path, tmp_path: Path) -> None:
    trained(picture_folder, tmp_path, SOLVER__EPOCHS=1)
    for changes, message in (
        ({"SELF_PACED__BALANCE": 2.0}, "SELF_PACED.BALANCE"),
        ({"DATASETS__TRAIN": "metric_pictures_sym40_s0"}, "other images or labels"),
    ):
        with pytest.raises(ValueError, match=message):
            MetricTrainer(config_for(picture_folder, tmp_path, **changes)).resume()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"METHOD": "triplet"}, "METHOD is 'triplet', expected one of contrastive, ms"),
        ({"SAMPLER__CLASSES": 9}, "SAMPLER.CLASSES is 9, expected at most 8"),
        ({"SAMPLER__PER_CLASS": 1}, "SAMPLER.PER_CLASS is 1, expected at least 2"),
        ({"TEST__RECALLS": "[48]"}, "TEST.RECALLS has 48, expected less than the 48 images"),
        ({"TEST__RECALLS": "[]"}, "TEST.RECALLS is"),
        ({"MODEL__ARCHITECTURE": "convnet5"}, "architecture is 'convnet5', expected one of"),
        ({"MODEL__WEIGHTS": "torchvision"}, "which torchvision does not have"),
        ({"SOLVER__MOMENTUM": 1.0}, "SOLVER.MOMENTUM is 1.0"),
        ({"INPUT__IN_MEMORY": True, "INPUT__AUGMENT": "crop_flip"}, "INPUT.IN_MEMORY is True"),
        ({"DATASETS__TEST": "nothing"}, "unknown data set 'nothing'"),
    ],
)
def test_bad_values_are_named(
    changes: dict[str, Any], message: str, picture_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        MetricTrainer(config_for(picture_folder, tmp_path, **changes))


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_yaml_builds_its_parts_and_gives_gradients(file: Path) -> None:
    cfg = load_metric_config(file, ["MODEL.DEVICE", "cpu"])
    network = build_embedding_network(cfg.MODEL.ARCHITECTURE, cfg.MODEL.EMBEDDING)
    method = build_method(cfg)
    torch.manual_seed(0)
    embeddings = network(torch.rand(6, 3, 48, 48))
    assert embeddings.shape == (6, cfg.MODEL.EMBEDDING)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(6))
    method(embeddings, torch.arange(6) % 2, torch.ones(6)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    has_superloss = any(isinstance(part, SuperLoss) for part in method.modules())
    assert has_superloss == ("superloss" in file.stem)
    if not file.stem.startswith("base_"):
        assert f"output/retrieval/metric/{file.stem}" == cfg.OUTPUT_DIR
        assert file.stem.endswith(f"_{cfg.METHOD}")


def test_the_papers_settings_are_those_of_its_text() -> None:
    cfg = load_metric_config(ROOT / "configs/retrieval/metric/cub200_bspml.yaml", [])
    loss, solver = cfg.LOSS, cfg.SOLVER
    assert (loss.ALPHA, loss.BETA, loss.BASE, loss.EPSILON) == (2, 50, 1, 0.1)
    assert (loss.POSITIVE_MARGIN, loss.NEGATIVE_MARGIN) == (1, 0)
    assert (cfg.MODEL.EMBEDDING, solver.OPTIMIZER, solver.BASE_LR) == (512, "sgd", 5e-6)
    assert (cfg.SAMPLER.CLASSES, cfg.SAMPLER.PER_CLASS) == (16, 4)


def test_every_key_is_read_by_something() -> None:
    names = ("bspml", "self_pacing", "metric_methods", "metric_datasets", "build")
    text = "\n".join((ROOT / "sl_retrieval" / f"{n}.py").read_text() for n in names)

    def check(node: CfgNode, section: str) -> None:
        for key, value in node.items():
            if isinstance(value, CfgNode):
                check(value, key)
            else:
                short = rf"(cfg\.{section}|{section.lower()}|options)" if section else "cfg"
                assert re.search(rf"{short}\.{key}\b", text), (section, key)

    check(get_metric_cfg(), "")


def make_characters(root: Path, alphabets: dict[str, int]) -> Path:
    for alphabet, characters in alphabets.items():
        for number in range(characters):
            folder = root / alphabet / f"character{number:02}"
            folder.mkdir(parents=True)
            for copy in range(2):
                Image.new("1", (8, 8), copy).save(folder / f"{copy}.png")
    return root


def test_two_levels_of_folders_give_classes_and_seen_groups_are_left_out(tmp_path: Path) -> None:
    seen = make_characters(tmp_path / "one", {"Greek": 2, "Latin": 1})
    root = make_characters(tmp_path / "two", {"Greek": 3, "Tagalog": 2})
    whole = from_two_levels("whole", root)
    assert whole.label_names[0] == "Greek/character00"
    assert len(whole.label_names) == 5
    unseen = from_two_levels("unseen", root, seen)
    assert unseen.label_names == ("Tagalog/character00", "Tagalog/character01")
    assert unseen.labels.tolist() == [0, 0, 1, 1]
    assert unseen.ids[0] == "Tagalog/character00/0.png"
    for folders, message in (
        ((tmp_path / "missing",), "missing, expected one with"),
        ((root, tmp_path / "missing"), "missing, expected one with"),
        ((root, root), "that .*two does not have"),
    ):
        with pytest.raises(ValueError, match=message):
            from_two_levels("bad", *folders)


def test_halves_share_no_class_and_keep_no_label_of_the_other(picture_folder: Path) -> None:
    train, test = (from_halves(part, picture_folder, part) for part in ("train", "test"))
    assert not set(train.label_names) & set(test.label_names)
    for half in (train, test):
        assert np.bincount(half.labels).tolist() == [6] * 4
        assert len(half.label_names) == 4
        folders = [Path(image).parent.name for image in half.images]
        assert folders == [half.label_names[label] for label in half.labels]


def test_a_plain_image_is_its_middle(tmp_path: Path) -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    images = SquareImages([str(tmp_path / "wide.png")], 10, (0, 0, 0), (1, 1, 1))
    assert images[0, 0].shape == (3, 10, 10)
    assert images[0, 0].min() == 1

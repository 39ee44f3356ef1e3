"""Digit scenes, noisy versions, VOC-style folders, and ids that travel with the annotations."""

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from detectron2.config import get_cfg
from detectron2.data import DatasetCatalog, MetadataCatalog
from detectron2.data.datasets import register_coco_instances
from detectron2.data.detection_utils import read_image
from detectron2.structures import BoxMode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sl_core import noise
from sl_detectron import add_robust_loss_config, digit_scenes, register_noisy, register_voc
from sl_detectron.annotation_ids import IdDatasetMapper, add_annotation_ids
from sl_detectron.digit_scenes import CANVAS, load_digit_scenes, register_digit_scenes
from sl_detectron.noisy_datasets import (
    clean_name,
    is_wrong,
    make_noisy,
    noisy_name,
    register_on_sight,
)
from sl_detectron.voc_datasets import AnnotationError, load_voc

register_digit_scenes()


def annotations(dicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [annotation for record in dicts for annotation in record["annotations"]]


def small_dataset() -> list[dict[str, Any]]:
    return [
        {
            "image_id": f"img{i}",
            "file_name": f"folder/img{i}.jpg",
            "width": 100,
            "height": 80,
            "annotations": [
                {
                    "bbox": [10.0 * j, 5.0, 20.0, 30.0],
                    "bbox_mode": BoxMode.XYWH_ABS,
                    "category_id": (i + j) % 20,
                    "iscrowd": int((i, j) == (0, 0)),
                }
                for j in range(i % 4 + 1)
            ],
        }
        for i in range(40)
    ]


def test_digit_scenes_are_the_same_every_time_and_within_the_canvas() -> None:
    scenes = load_digit_scenes("train")
    assert scenes == load_digit_scenes("train")
    assert {len(scene["annotations"]) for scene in scenes} == {1, 2, 3, 4}
    assert {a["category_id"] for a in annotations(scenes)} == set(range(10))
    boxes = np.array([a["bbox"] for a in annotations(scenes)])
    assert boxes.min() >= 0
    assert boxes.max() <= CANVAS


def test_the_splits_are_made_of_different_digits() -> None:
    digits = {split: digit_scenes._digits(split)[0] for split in ("train", "test", "val")}
    assert sum(map(len, digits.values())) == 1797
    seen = {split: {image.tobytes() for image in images} for split, images in digits.items()}
    for one, other in itertools.combinations(seen.values(), 2):
        assert len(one & other) < 5, "scikit-learn has hardly any twice"


def test_digit_scenes_are_painted_when_read_and_show_ink_in_their_boxes() -> None:
    scene = load_digit_scenes("test")[3]
    image = read_image(scene["file_name"], "BGR")
    np.testing.assert_array_equal(image, read_image(scene["file_name"], "BGR"))
    assert image.shape == (CANVAS, CANVAS, 3)
    inside = np.zeros((CANVAS, CANVAS), bool)
    for annotation in scene["annotations"]:
        x0, y0, x1, y1 = (int(v) for v in annotation["bbox"])
        inside[y0:y1, x0:x1] = True
    assert image[inside].mean() > image[~inside].mean() + 15


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["sym", "symkeep", "asym", "box"]), st.floats(0, 1), st.integers(0, 99))
def test_noise_counts_are_exact_and_the_truth_is_kept(kind: str, rate: float, seed: int) -> None:
    clean, dicts = small_dataset(), small_dataset()
    confusion = {c: (c + 1) % 20 for c in range(20)}
    digest = make_noisy(dicts, kind, rate, seed, 20, confusion)
    again = small_dataset()
    assert make_noisy(again, kind, rate, seed, 20, confusion) == digest
    assert again == dicts
    total = len(annotations(clean)) - 1
    wrong = sum(is_wrong(a) for a in annotations(dicts))
    if kind in ("sym", "asym"):
        assert wrong == round(rate * total)
    else:
        assert wrong <= round(rate * total)
    for before, after in zip(annotations(clean), annotations(dicts), strict=True):
        if before["iscrowd"]:
            assert before == after
        elif kind == "box":
            assert after["clean_bbox"] == before["bbox"]
            x, y, w, h = after["bbox"]
            assert 0 <= x <= x + w <= 100
            assert 0 <= y <= y + h <= 80
            assert abs(x + w / 2 - (before["bbox"][0] + 10)) <= rate * 20 * 1.5 + 1e-6
        else:
            assert after["clean_category_id"] == before["category_id"]
            assert 0 <= after["category_id"] < 20


def test_noise_follows_image_id_and_position() -> None:
    dicts = small_dataset()
    make_noisy(dicts, "sym", 0.4, 3, 20)
    turned = list(reversed(small_dataset()))
    make_noisy(turned, "sym", 0.4, 3, 20)
    assert list(reversed(turned)) == dicts


def test_names_are_registered_on_sight() -> None:
    register_on_sight(["digits_train_sym40_s7", "voc_2007_test", "digits_train"])
    dicts = DatasetCatalog.get("digits_train_sym40_s7")
    total = len(annotations(dicts))
    assert sum(is_wrong(a) for a in annotations(dicts)) == round(0.4 * total)
    metadata = MetadataCatalog.get("digits_train_sym40_s7")
    assert metadata.thing_classes == [str(d) for d in range(10)]
    labels = [a["category_id"] for a in annotations(dicts)]
    assert metadata.noise_digest == noise.digest(np.array(labels))
    clean = DatasetCatalog.get("digits_train")
    assert not any("clean_category_id" in a for a in annotations(clean))
    assert register_noisy("digits_train", "sym", 0.4, 7) == "digits_train_sym40_s7"


def test_a_coco_file_of_the_user_can_be_made_noisy(tmp_path: Path) -> None:
    """Its classes are known only after it is loaded; evaluation reads the clean one."""
    content = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 50, "height": 50}],
        "categories": [{"id": 7, "name": "cat"}, {"id": 9, "name": "dog"}],
        "annotations": [
            {
                "id": i,
                "image_id": 1,
                "category_id": 7,
                "bbox": [i, 1, 9, 9],
                "area": 81,
                "iscrowd": 0,
            }
            for i in range(1, 6)
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    register_coco_instances("my_coco", {}, str(tmp_path / "coco.json"), str(tmp_path))
    register_on_sight(["my_coco_sym40_s0"])
    dicts = DatasetCatalog.get("my_coco_sym40_s0")
    assert [a["category_id"] for a in annotations(dicts)].count(1) == 2
    assert clean_name("my_coco_sym40_s0") == "my_coco"
    assert clean_name("my_coco") == "my_coco"


def test_bad_noise_names_are_explained() -> None:
    with pytest.raises(ValueError, match="'digits_tarin' is not a registered data set"):
        register_on_sight(["digits_tarin_sym40_s0"])
    with pytest.raises(ValueError, match="140 %, expected 0 to 100"):
        register_on_sight(["digits_train_sym140_s0"])
    with pytest.raises(ValueError, match="kind of noise is 'salt', expected one of sym, symkeep"):
        noisy_name("digits_train", "salt", 0.4, 0)
    with pytest.raises(ValueError, match=r"rate is 0.405, expected 0 to 1 in whole percents"):
        noisy_name("digits_train", "sym", 0.405, 0)


def write_voc(root: Path) -> Path:
    """A small folder with every damage that real ones have."""
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (root / name).mkdir(parents=True)

    def thing(name: str, box: tuple[int, ...], extra: str = "") -> str:
        corners = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        inner = "".join(f"<{k}>{v}</{k}>" for k, v in corners)
        return f"<object><name>{name}</name>{extra}<bndbox>{inner}</bndbox></object>"

    size = "<size><width>60</width><height>40</height></size>"
    files = {
        "good": size + thing("cat", (1, 1, 60, 40), "<difficult>1</difficult>"),
        "nosize": thing("dog", (5, 5, 20, 20)),
        "zero": size + thing("cat", (10, 10, 10, 30)) + thing("dog", (2, 2, 30, 30)),
        "reversed": size + thing("cat", (30, 30, 10, 10)),
        "unknown": size + thing("unicorn", (5, 5, 20, 20)),
        "outside": size + thing("cat", (50, 30, 90, 70)),
        "nobox": size + "<object><name>cat</name></object>",
        "swapped": "<size><width>40</width><height>60</height></size>"
        + thing("dog", (5, 5, 20, 20)),
        "noimage": size + thing("cat", (5, 5, 20, 20)),
    }
    for name, text in files.items():
        (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{text}</annotation>")
        if name != "noimage":
            Image.new("RGB", (60, 40)).save(root / "JPEGImages" / f"{name}.jpg")
    (root / "Annotations" / "broken.xml").write_text("<annotation><object>")
    names = [*files, "broken", "absent"]
    (root / "ImageSets" / "Main" / "train.txt").write_text("\n".join(names) + "\n")
    return root


def test_voc_folders_are_read_and_damage_is_reported_by_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_voc(tmp_path)
    records = {r["image_id"]: r for r in load_voc(str(tmp_path), "train", ["cat", "dog"])}
    usable = {"good", "nosize", "zero", "reversed", "unknown", "outside", "nobox", "swapped"}
    assert set(records) == usable
    assert (records["swapped"]["width"], records["swapped"]["height"]) == (60, 40)
    assert records["good"]["annotations"][0]["bbox"] == [0, 0, 60, 40]
    assert records["good"]["annotations"][0]["difficult"] == 1
    assert (records["nosize"]["width"], records["nosize"]["height"]) == (60, 40)
    assert records["outside"]["annotations"][0]["bbox"] == [49, 29, 60, 40]
    assert [len(records[n]["annotations"]) for n in ("zero", "reversed", "unknown")] == [1, 0, 0]
    assert "8 damaged entries" in caplog.text
    for name in ("zero", "reversed", "unknown", "nobox", "swapped", "noimage", "broken", "absent"):
        assert name in caplog.text


def test_voc_folders_can_stop_at_damage(tmp_path: Path) -> None:
    write_voc(tmp_path)
    with pytest.raises(AnnotationError, match="8 damaged entries"):
        load_voc(str(tmp_path), "train", ["cat", "dog"], on_error="stop")
    with pytest.raises(
        FileNotFoundError, match=r"val\.txt does not exist; splits there: \['train'\]"
    ):
        load_voc(str(tmp_path), "val", ["cat", "dog"])
    for image in (tmp_path / "JPEGImages").glob("*o*.jpg"):
        image.unlink()
    with pytest.raises(AnnotationError, match="damaged entries"):
        load_voc(str(tmp_path), "train", ["cat", "dog"])
    with pytest.raises(ValueError, match=r"class_names is \[0, 1\], expected a list of names"):
        register_voc("never", str(tmp_path), "train", [0, 1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="on_error is 'ask', expected one of skip, stop"):
        register_voc("never", str(tmp_path), "train", ["cat"], on_error="ask")


def mapper() -> IdDatasetMapper:
    cfg = get_cfg()
    add_robust_loss_config(cfg)
    cfg.INPUT.MIN_SIZE_TRAIN = (96,)
    return IdDatasetMapper(cfg, is_train=True)


def test_ids_travel_with_the_annotations_that_the_mapper_keeps() -> None:
    record = copy.deepcopy(
        next(s for s in load_digit_scenes("train") if len(s["annotations"]) == 4)
    )
    record["annotations"][1]["iscrowd"] = 1
    record["annotations"][2]["bbox"] = [5.0, 5.0, 5.0, 5.0]
    add_annotation_ids([record], "digits_train")
    mapped = mapper()(record)
    kept = [record["annotations"][0], record["annotations"][3]]
    instances = mapped["instances"]
    assert instances.gt_ids.tolist() == [a["id"] for a in kept]
    assert instances.gt_classes.tolist() == [a["category_id"] for a in kept]
    without = copy.deepcopy(record)
    for annotation in without["annotations"]:
        del annotation["id"]
    plain = mapper()(without)["instances"]
    assert not plain.has("gt_ids")
    assert torch.equal(plain.gt_classes, instances.gt_classes)


def test_ids_are_stable_unique_and_not_overwritten() -> None:
    first, second = small_dataset(), list(reversed(small_dataset()))
    first[5]["annotations"][0]["id"] = 42
    add_annotation_ids(first, "name")
    add_annotation_ids(second, "name")
    ids = [a["id"] for a in annotations(first)]
    assert len(set(ids)) == len(ids)
    assert first[5]["annotations"][0]["id"] == 42
    assert first[7]["annotations"][0]["id"] == second[-8]["annotations"][0]["id"]
    assert max(ids) < 2**63
    other = small_dataset()
    add_annotation_ids(other, "other name")
    assert not {a["id"] for a in annotations(other)} & set(ids)

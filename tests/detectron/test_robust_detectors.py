"""Robust detectors against the stock ones: equal without weighting and for a large lambda."""

from typing import Any

import pytest
import torch
from detectron2.structures import Boxes, Instances
from detectron2.utils.events import EventStorage
from torch import Tensor

from sl_detectron.weighting import Observation
from tests.detectron.small_models import (
    KINDS,
    NUM_CLASSES,
    build,
    config,
    images,
    losses_and_gradients,
)

CLS, BOX = "MODEL.ROBUST_LOSS.CLS", "MODEL.ROBUST_LOSS.BOX"
kinds = pytest.mark.parametrize("kind", KINDS)


def superloss(lam: float | str, samples: str = "foreground", scope: str = "all") -> list[Any]:
    options = {"NAME": "superloss", "LAMBDA": lam, "SAMPLES": samples, "TAU_SCOPE": scope}
    return [item for key, value in options.items() for item in (f"{CLS}.{key}", value)]


def box_superloss(lam: float | str) -> list[Any]:
    return [f"{BOX}.NAME", "superloss", f"{BOX}.LAMBDA", lam]


def assert_equal_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """To 1e-5 of each parameter's largest gradient."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        error = (found[name] - gradient).abs().max()
        assert error <= 1e-5 * gradient.abs().max() + 1e-9, name


@kinds
@pytest.mark.parametrize("boxes", [(3, 2), (0, 2), (0, 0)], ids=str)
def test_name_none_equals_the_stock_losses_bit_for_bit(kind: str, boxes: tuple[int, ...]) -> None:
    stock = build(config(kind, robust=False))
    robust = build(config(kind), like=stock)
    expected, expected_gradients = losses_and_gradients(stock, images(boxes))
    found, gradients = losses_and_gradients(robust, images(boxes))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-5, atol=1e-8)


@kinds
@pytest.mark.parametrize("samples", ["all", "foreground"])
@pytest.mark.parametrize("scope", ["all", "fgbg", "class"])
def test_a_large_lambda_gives_the_stock_gradients(kind: str, samples: str, scope: str) -> None:
    stock = build(config(kind, robust=False))
    options = (*superloss(1e9, samples, scope), *box_superloss(1e9))
    robust = build(config(kind, *options), like=stock)
    _, expected = losses_and_gradients(stock, images())
    _, found = losses_and_gradients(robust, images())
    assert_equal_gradients(found, expected)


@kinds
def test_a_small_lambda_changes_the_gradients_of_both_losses(kind: str) -> None:
    stock = build(config(kind, robust=False))
    _, expected = losses_and_gradients(stock, images())
    for options, own, other in (
        (superloss(0.1), "cls_score", "bbox_pred"),
        (box_superloss(0.01), "bbox_pred", "cls_score"),
    ):
        _, found = losses_and_gradients(build(config(kind, *options), like=stock), images())
        changed = {n for n in found if not torch.allclose(found[n], expected[n], atol=1e-7)}
        assert any(own in name for name in changed)
        assert not any(other in name for name in changed)


@pytest.mark.parametrize("kind", ["FPN", "C4", "Cascade"])
@pytest.mark.parametrize("name", ["mae", "gce", "gce_trunc", "imae", "gr"])
@pytest.mark.parametrize("samples", ["all", "foreground"])
def test_every_classification_loss_trains(kind: str, name: str, samples: str) -> None:
    model = build(config(kind, f"{CLS}.NAME", name, f"{CLS}.SAMPLES", samples))
    losses, gradients = losses_and_gradients(model, images())
    assert all(value.isfinite() for value in losses.values())
    assert all(value.isfinite().all() for value in gradients.values())


@kinds
@pytest.mark.parametrize("boxes", [(0, 2), (0, 0)], ids=str)
def test_images_without_annotations_train(kind: str, boxes: tuple[int, ...]) -> None:
    model = build(config(kind, *superloss("auto", scope="class"), *box_superloss("auto")))
    losses, gradients = losses_and_gradients(model, images(boxes))
    assert all(value.isfinite() for value in losses.values())
    assert all(value.isfinite().all() for value in gradients.values())


def test_no_proposals_at_all_gives_zero_losses_with_a_graph() -> None:
    predictor = build(config("FPN", *superloss(0.25), *box_superloss(0.25))).roi_heads.box_predictor
    nothing = Instances((96, 96), proposal_boxes=Boxes(torch.zeros(0, 4)))
    nothing.gt_boxes = Boxes(torch.zeros(0, 4))
    nothing.gt_classes = torch.zeros(0, dtype=torch.long)
    with EventStorage():
        losses = predictor.losses(predictor(torch.zeros(0, 32)), [nothing])
    sum(losses.values()).backward()
    assert all(value.item() == 0 for value in losses.values())


@pytest.mark.parametrize("loss_type", ["smooth_l1", "giou", "diou", "ciou"])
@kinds
def test_every_regression_loss_of_the_installed_detectron2(kind: str, loss_type: str) -> None:
    key = "RETINANET" if kind == "RetinaNet" else "ROI_BOX_HEAD"
    options = (f"MODEL.{key}.BBOX_REG_LOSS_TYPE", loss_type)
    stock = build(config(kind, *options, robust=False))
    try:
        _, expected = losses_and_gradients(stock, images())
    except ValueError:
        assert loss_type in ("diou", "ciou"), "0.5 has smooth_l1 and giou"
        return
    robust = build(config(kind, *options, *box_superloss(1e9)), like=stock)
    _, found = losses_and_gradients(robust, images())
    assert_equal_gradients(found, expected)


def test_class_agnostic_regression_is_wrapped() -> None:
    options = ("MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG", True)
    stock = build(config("FPN", *options, robust=False))
    robust = build(config("FPN", *options, *box_superloss(1e9)), like=stock)
    _, expected = losses_and_gradients(stock, images())
    _, found = losses_and_gradients(robust, images())
    assert_equal_gradients(found, expected)


@kinds
@pytest.mark.parametrize("samples", ["all", "foreground"])
def test_observation_tells_the_confidence_of_matched_annotations(kind: str, samples: str) -> None:
    model = build(config(kind, *superloss(0.25, samples)))
    losses_and_gradients(model, images())
    source = model if kind == "RetinaNet" else model.roi_heads.box_predictor
    source = source[0] if kind == "Cascade" else source
    observation = source.observation
    assert isinstance(observation, Observation)
    ids = set(observation.ids.tolist())
    assert ids <= {0, 1, 2, 100, 101}
    assert ids & {0, 1, 2}, "of the first image"
    assert ids & {100, 101}, "of the second image"
    assert len(observation.ids) == len(observation.confidence) > 0
    assert observation.probabilities.shape == (len(observation.ids), NUM_CLASSES)
    assert not observation.probabilities.requires_grad
    weighting = source.classification_weighting
    assert weighting.loss.confidence.numel() >= len(observation.ids)
    if samples == "foreground":
        torch.testing.assert_close(observation.confidence, weighting.loss.confidence)


def test_data_without_ids_trains_and_observes_nothing() -> None:
    for kind in ("FPN", "RetinaNet"):
        model = build(config(kind, *superloss(0.25)))
        inputs = images()
        for entry in inputs:
            entry["instances"].remove("gt_ids")
        losses_and_gradients(model, inputs)
        source = model if kind == "RetinaNet" else model.roi_heads.box_predictor
        assert source.observation is None


def test_cascade_stages_have_their_own_thresholds() -> None:
    model = build(config("Cascade", *superloss(0.25)))
    losses_and_gradients(model, images())
    taus = {p.classification_weighting.loss.tau.item() for p in model.roi_heads.box_predictor}
    assert len(taus) == 3


def test_only_foreground_enters_tau_by_default() -> None:
    model = build(config("FPN", f"{CLS}.NAME", "superloss"))
    losses_and_gradients(model, images())
    predictor = model.roi_heads.box_predictor
    count = predictor.classification_weighting.loss.count.sum().item()
    assert count == len(predictor.observation.ids) < 48


def test_the_defaults_are_the_best_that_were_measured_for_each_kind_of_loss() -> None:
    """docs/results-digits.md: cross-entropies and focal losses have different scales."""
    softmax = build(config("FPN", f"{CLS}.NAME", "superloss")).roi_heads.box_predictor
    focal = build(config("RetinaNet", f"{CLS}.NAME", "superloss"))
    for model, scope, lam in ((softmax, "class", 0.25), (focal, "all", 0.03)):
        weighting = model.classification_weighting
        assert (weighting.samples, weighting.tau_scope) == ("foreground", scope)
        assert (weighting.loss.policy, weighting.loss.lam) == ("expavg", lam)


def test_retinanet_normaliser_is_saved_and_restored() -> None:
    first = build(config("RetinaNet", *superloss(0.25)))
    for _ in range(3):
        losses_and_gradients(first, images())
    second = build(config("RetinaNet", *superloss(0.25)))
    second.load_state_dict(first.state_dict())
    assert second.loss_normalizer == first.loss_normalizer != 100
    torch.testing.assert_close(
        losses_and_gradients(second, images())[0], losses_and_gradients(first, images())[0]
    )


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("FPN", (f"{CLS}.NAME", "focal"), "CLS.NAME is 'focal', expected one of none, superloss"),
        ("RetinaNet", (f"{CLS}.NAME", "gr"), "CLS.NAME is 'gr', expected one of none, superloss$"),
        ("FPN", (f"{CLS}.SAMPLES", "some"), "CLS.SAMPLES is 'some', expected one of all, foreg"),
        ("FPN", (f"{CLS}.TAU_SCOPE", "box"), "CLS.TAU_SCOPE is 'box', expected one of all, fgbg"),
        ("FPN", superloss(-1.0), "MODEL.ROBUST_LOSS.CLS: lam is -1.0, expected a number above 0"),
        ("FPN", (*superloss(1.0), f"{CLS}.TAU", "x"), "MODEL.ROBUST_LOSS.CLS: tau is 'x', expec"),
        ("FPN", (f"{BOX}.NAME", "gr"), "BOX.NAME is 'gr', expected one of none, superloss"),
        (
            "FPN",
            (*box_superloss(1.0), f"{BOX}.TAU", "logc"),
            "BOX.TAU is 'logc', expected avg",
        ),
    ],
)
def test_a_wrong_config_value_is_named(kind: str, options: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(config(kind, *options))


def test_scalars_and_histograms_go_to_the_storage_and_not_to_the_losses() -> None:
    model = build(config("FPN", *superloss(0.25, "all", "fgbg")))
    torch.manual_seed(1)
    with EventStorage() as storage:
        losses = model(images())
        found = set(storage.latest())
        histograms = {histogram["tag"] for histogram in storage._histograms}
    assert set(losses) == {"loss_cls", "loss_box_reg", "loss_rpn_cls", "loss_rpn_loc"}
    expected = {f"sl/confidence_{g}_{s}" for g in ("fg", "bg") for s in ("mean", "below_half")}
    assert expected | {"sl/tau_fg", "sl/tau_bg"} <= found
    assert not any("loss" in name for name in found if name.startswith("sl/")), "console shows them"
    assert {"sl/confidence_fg", "sl/confidence_bg"} <= histograms


def test_training_runs_without_an_event_storage_in_the_weighting() -> None:
    predictor = build(config("FPN", *superloss(0.25))).roi_heads.box_predictor
    weighting = predictor.classification_weighting
    plain = torch.rand(4, requires_grad=True)
    difference, confidence = weighting(plain, torch.tensor([0, 1, 2, 3]), torch.rand(4, 6))
    assert difference.requires_grad
    assert confidence.shape == (4,)

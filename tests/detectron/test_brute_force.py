"""The corrected losses against the definition, box by box in plain loops."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from detectron2.structures import Boxes, Instances
from detectron2.utils.events import EventStorage
from fvcore.nn import giou_loss, sigmoid_focal_loss, smooth_l1_loss
from torch import Tensor

from sl_core import super_loss
from tests.detectron.small_models import NUM_CLASSES, build, config

CLS, BOX = "MODEL.ROBUST_LOSS.CLS", "MODEL.ROBUST_LOSS.BOX"
TAU, LAM, BOX_TAU, BOX_LAM = 1.5, 0.5, 0.3, 0.2


def options(samples: str) -> list[Any]:
    chosen = {
        f"{CLS}.NAME": "superloss",
        f"{CLS}.TAU": TAU,
        f"{CLS}.LAMBDA": LAM,
        f"{CLS}.SAMPLES": samples,
        f"{BOX}.NAME": "superloss",
        f"{BOX}.TAU": BOX_TAU,
        f"{BOX}.LAMBDA": BOX_LAM,
    }
    return [item for pair in chosen.items() for item in pair]


def random_boxes(count: int, generator: torch.Generator) -> Tensor:
    corner = torch.rand(count, 2, generator=generator) * 40
    return torch.cat((corner, corner + 10 + torch.rand(count, 2, generator=generator) * 30), dim=1)


def robust(plain: Tensor, tau: float, lam: float) -> Tensor:
    return super_loss(plain.reshape(1), tau, lam).sum()


@pytest.mark.parametrize("samples", ["all", "foreground"])
@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("loss_type", ["smooth_l1", "giou"])
def test_fast_rcnn(samples: str, agnostic: bool, loss_type: str) -> None:
    more = ["MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG", agnostic]
    more += ["MODEL.ROI_BOX_HEAD.BBOX_REG_LOSS_TYPE", loss_type]
    predictor = build(config("FPN", *options(samples), *more)).roi_heads.box_predictor
    generator = torch.Generator().manual_seed(0)
    count = 12
    scores = 2 * torch.randn(count, NUM_CLASSES + 1, generator=generator)
    deltas = 0.3 * torch.randn(count, 4 if agnostic else 4 * NUM_CLASSES, generator=generator)
    boxes, targets = random_boxes(count, generator), random_boxes(count, generator)
    classes = torch.arange(count) % (NUM_CLASSES + 1)
    proposals = Instances((96, 96), proposal_boxes=Boxes(boxes), gt_boxes=Boxes(targets))
    proposals.gt_classes = classes
    with EventStorage():
        found = predictor.losses((scores, deltas), [proposals])

    transform = predictor.box2box_transform
    loss_cls, loss_box = torch.zeros(()), torch.zeros(())
    for i in range(count):
        label, foreground = int(classes[i]), int(classes[i]) < NUM_CLASSES
        plain = F.cross_entropy(scores[i : i + 1], classes[i : i + 1])
        weighted = foreground or samples == "all"
        loss_cls += robust(plain, TAU, LAM) if weighted else plain
        if foreground:
            own = deltas[i, :4] if agnostic else deltas[i, 4 * label : 4 * label + 4]
            box, target = boxes[i : i + 1], targets[i : i + 1]
            if loss_type == "smooth_l1":
                wanted = transform.get_deltas(box, target)
                plain = smooth_l1_loss(own[None], wanted, predictor.smooth_l1_beta, "sum")
            else:
                plain = giou_loss(transform.apply_deltas(own[None], box), target, "sum")
            loss_box += robust(plain, BOX_TAU, BOX_LAM)
    torch.testing.assert_close(found["loss_cls"], loss_cls / count)
    torch.testing.assert_close(found["loss_box_reg"], loss_box / count)


@pytest.mark.parametrize("samples", ["all", "foreground"])
def test_retinanet(samples: str) -> None:
    model = build(config("RetinaNet", *options(samples)))
    generator = torch.Generator().manual_seed(0)
    images, anchors = 2, 9
    logits = 2 * torch.randn(images, anchors, NUM_CLASSES, generator=generator)
    deltas = 0.3 * torch.randn(images, anchors, 4, generator=generator)
    boxes = random_boxes(anchors, generator)
    targets = [random_boxes(anchors, generator) for _ in range(images)]
    # Classes, background and ignored anchors.
    labels = [
        torch.tensor([0, 1, 2, 5, 5, -1, 4, 5, -1]),
        torch.tensor([5, 3, 5, 5, 0, 1, -1, 5, 5]),
    ]
    with EventStorage():
        found = model.losses([Boxes(boxes)], [logits], labels, [deltas], targets)

    loss_cls, loss_box, positives = torch.zeros(()), torch.zeros(()), 0
    for image in range(images):
        for i in range(anchors):
            label = int(labels[image][i])
            if label < 0:
                continue
            target = torch.zeros(NUM_CLASSES)
            foreground = label < NUM_CLASSES
            if foreground:
                positives += 1
                target[label] = 1
                wanted = model.box2box_transform.get_deltas(
                    boxes[i : i + 1], targets[image][i : i + 1]
                )
                own = deltas[image, i : i + 1]
                plain_box = smooth_l1_loss(own, wanted, model.smooth_l1_beta, "sum")
                loss_box += robust(plain_box, BOX_TAU, BOX_LAM)
            alpha, gamma = model.focal_loss_alpha, model.focal_loss_gamma
            plain = sigmoid_focal_loss(logits[image, i], target, alpha, gamma, "sum")
            loss_cls += robust(plain, TAU, LAM) if foreground or samples == "all" else plain
    normaliser = 0.9 * 100 + 0.1 * positives
    torch.testing.assert_close(found["loss_cls"], loss_cls / normaliser)
    torch.testing.assert_close(found["loss_box_reg"], loss_box / normaliser)


@pytest.mark.parametrize("scope", ["all", "fgbg", "class"])
@pytest.mark.parametrize("samples", ["all", "foreground"])
def test_boxes_share_a_threshold_by_scope(scope: str, samples: str) -> None:
    chosen = {"NAME": "superloss", "TAU_SCOPE": scope, "SAMPLES": samples}
    opts = [item for key, value in chosen.items() for item in (f"{CLS}.{key}", value)]
    weighting = build(config("FPN", *opts)).roi_heads.box_predictor.classification_weighting
    classes = torch.tensor([0, 0, 1, 4, 5, 5, 5])
    classes = classes[weighting.chosen(classes)]
    weighting(torch.rand(len(classes)), classes, torch.rand(len(classes), 6))
    by_class = torch.bincount(classes, minlength=6).tolist()
    expected = {
        "all": [sum(by_class)],
        "fgbg": [sum(by_class[:5]), by_class[5]],
        "class": by_class,
    }
    assert weighting.loss.count.tolist() == expected[scope]

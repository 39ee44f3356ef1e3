"""RetinaNet with robust losses per anchor."""

from typing import Any

import torch
import torch.nn.functional as F
from detectron2.config import CfgNode, configurable
from detectron2.layers import cat
from detectron2.modeling import META_ARCH_REGISTRY
from detectron2.modeling.meta_arch.retinanet import RetinaNet
from detectron2.structures import Boxes, Instances
from fvcore.nn import sigmoid_focal_loss
from torch import Tensor

from sl_core import SuperLoss
from sl_detectron.compat import box_losses
from sl_detectron.weighting import (
    DENSE_LOSSES,
    ClassificationWeighting,
    Observation,
    build_box_weighting,
    build_classification_weighting,
)


@META_ARCH_REGISTRY.register()
class RobustRetinaNet(RetinaNet):
    """RetinaNet whose losses are weighted per anchor.

    A sample of the classification loss is an anchor with its focal loss summed over classes;
    ignored anchors are out. The losses are the stock ones plus the difference that the robust
    loss makes, over the stock normaliser, which is saved and restored with the checkpoint.

    Attributes:
        observation: what the latest training step said of the annotations; None if the data
            carry no ids (see ``IdDatasetMapper``).
    """

    @configurable
    def __init__(
        self,
        *,
        classification_weighting: ClassificationWeighting | None = None,
        box_weighting: SuperLoss | None = None,
        **stock: Any,
    ) -> None:
        super().__init__(**stock)
        self.classification_weighting = classification_weighting
        self.box_weighting = box_weighting
        self.observation: Observation | None = None
        self._anchor_ids: Tensor | None = None

    @classmethod
    def from_config(cls, cfg: CfgNode) -> dict[str, Any]:
        """Arguments of __init__ from a config."""
        num_classes = cfg.MODEL.RETINANET.NUM_CLASSES
        weighting = build_classification_weighting(cfg, num_classes, DENSE_LOSSES)
        return {
            **super().from_config(cfg),
            "classification_weighting": weighting,
            "box_weighting": build_box_weighting(cfg),
        }

    def get_extra_state(self) -> Tensor:
        """The normaliser, which detectron2 keeps as a plain number and forgets at a resume."""
        return torch.tensor(float(getattr(self, "loss_normalizer", 100)), dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the normaliser."""
        self.loss_normalizer = float(state)

    @torch.no_grad()
    def label_anchors(
        self, anchors: list[Boxes], gt_instances: list[Instances]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The stock labels and boxes; remembers which annotation each anchor belongs to."""
        if not all(len(gt) == 0 or gt.has("gt_ids") for gt in gt_instances):
            self._anchor_ids = None
            return super().label_anchors(anchors, gt_instances)  # type: ignore[no-any-return]
        # The positions of the annotations in the place of their classes, beyond the label of
        # background, so that one matching tells classes and ids.
        first = self.num_classes + 1
        positions = []
        for gt in gt_instances:
            coded = Instances(gt.image_size, gt_boxes=gt.gt_boxes)
            coded.gt_classes = torch.arange(first, first + len(gt), device=gt.gt_classes.device)
            positions.append(coded)
        labels, boxes = super().label_anchors(anchors, positions)
        ids = [torch.full_like(label, -1) for label in labels]
        for gt, label, image_ids in zip(gt_instances, labels, ids, strict=True):
            matched = label >= first
            position = label[matched] - first
            if len(gt):
                image_ids[matched] = gt.gt_ids[position]
                label[matched] = gt.gt_classes[position]
        self._anchor_ids = torch.stack(ids)
        return labels, boxes

    def losses(
        self,
        anchors: list[Boxes],
        pred_logits: list[Tensor],
        gt_labels: list[Tensor],
        pred_anchor_deltas: list[Tensor],
        gt_boxes: list[Tensor],
    ) -> dict[str, Tensor]:
        """The stock losses, corrected; arguments as in RetinaNet."""
        losses: dict[str, Tensor] = super().losses(
            anchors, pred_logits, gt_labels, pred_anchor_deltas, gt_boxes
        )
        labels = torch.stack(gt_labels)  # (N, R)
        foreground = (labels >= 0) & (labels != self.num_classes)
        weighting = self.classification_weighting
        chosen = foreground if weighting is None else weighting.chosen(labels)
        logits, classes = cat(pred_logits, dim=1)[chosen], labels[chosen]
        confidence = torch.ones_like(classes, dtype=torch.float32)
        if weighting is not None:
            targets = F.one_hot(classes, self.num_classes + 1)[:, :-1].to(logits.dtype)
            plain = sigmoid_focal_loss(
                logits, targets, alpha=self.focal_loss_alpha, gamma=self.focal_loss_gamma
            ).sum(-1)
            difference, confidence = weighting(plain, classes, logits)
            losses["loss_cls"] = losses["loss_cls"] + difference / self.loss_normalizer
        if self.box_weighting is not None:
            self._correct_regression(losses, anchors, pred_anchor_deltas, gt_boxes, foreground)
        own = classes < self.num_classes
        self.observation = (
            None
            if self._anchor_ids is None
            else Observation(
                self._anchor_ids[chosen][own], confidence[own], logits[own].detach().sigmoid()
            )
        )
        return losses

    def _correct_regression(
        self,
        losses: dict[str, Tensor],
        anchors: list[Boxes],
        pred_anchor_deltas: list[Tensor],
        gt_boxes: list[Tensor],
        foreground: Tensor,
    ) -> None:
        assert self.box_weighting is not None
        boxes = Boxes.cat(anchors).tensor.expand(len(gt_boxes), -1, -1)
        plain = box_losses(
            self.box_reg_loss_type,
            self.box2box_transform,
            cat(pred_anchor_deltas, dim=1)[foreground],
            boxes[foreground],
            torch.stack(gt_boxes)[foreground],
            self.smooth_l1_beta,
        )
        difference = (self.box_weighting(plain) - plain).sum()
        losses["loss_box_reg"] = losses["loss_box_reg"] + difference / self.loss_normalizer

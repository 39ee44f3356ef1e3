"""Fast R-CNN's output layers with robust losses; the ROI heads of this package use them."""

from typing import Any

import torch
import torch.nn.functional as F
from detectron2.config import CfgNode, configurable
from detectron2.layers import cat
from detectron2.modeling.roi_heads.fast_rcnn import FastRCNNOutputLayers
from detectron2.structures import Instances
from torch import Tensor

from sl_core import SuperLoss
from sl_detectron.compat import box_losses, uses_sigmoid_classification
from sl_detectron.weighting import (
    ClassificationWeighting,
    Observation,
    build_box_weighting,
    build_classification_weighting,
)


class RobustOutputLayers(FastRCNNOutputLayers):
    """FastRCNNOutputLayers whose losses are weighted per box.

    The losses are the stock ones plus the difference that the robust loss makes, divided by the
    number of boxes as the stock ones are. Without weighting they are the stock ones bit for bit.

    Args:
        classification_weighting: None keeps the stock classification loss.
        box_weighting: None keeps the stock box regression loss.
        stock: arguments of FastRCNNOutputLayers.

    Attributes:
        observation: what the latest training step said of the annotations; None if the data
            carry no ids (see ``IdDatasetMapper``).
    """

    @configurable
    def __init__(
        self,
        input_shape: Any,
        *,
        classification_weighting: ClassificationWeighting | None = None,
        box_weighting: SuperLoss | None = None,
        **stock: Any,
    ) -> None:
        super().__init__(input_shape, **stock)
        self.classification_weighting = classification_weighting
        self.box_weighting = box_weighting
        self.observation: Observation | None = None

    @classmethod
    def from_config(cls, cfg: CfgNode, input_shape: Any) -> dict[str, Any]:
        """Arguments of __init__ from a config."""
        weighting = build_classification_weighting(cfg, cfg.MODEL.ROI_HEADS.NUM_CLASSES)
        if weighting is not None and uses_sigmoid_classification(cfg):
            raise ValueError(
                f"MODEL.ROBUST_LOSS.CLS.NAME is {cfg.MODEL.ROBUST_LOSS.CLS.NAME!r}, expected none: "
                "the sigmoid and federated losses (MODEL.ROI_BOX_HEAD.USE_SIGMOID_CE, "
                "USE_FED_LOSS) cannot be wrapped"
            )
        return {
            **super().from_config(cfg, input_shape),
            "classification_weighting": weighting,
            "box_weighting": build_box_weighting(cfg),
        }

    def losses(
        self, predictions: tuple[Tensor, Tensor], proposals: list[Instances]
    ) -> dict[str, Tensor]:
        """The stock losses, corrected; arguments as in FastRCNNOutputLayers."""
        losses: dict[str, Tensor] = super().losses(predictions, proposals)
        scores, deltas = predictions
        classes = (
            cat([p.gt_classes for p in proposals]) if proposals else scores.new_zeros(0).long()
        )
        confidence = self._correct_classification(losses, scores, classes)
        if self.box_weighting is not None:
            self._correct_regression(losses, deltas, classes, proposals)
        self.observation = self._observe(scores, classes, confidence, proposals)
        return losses

    def _correct_classification(
        self, losses: dict[str, Tensor], scores: Tensor, classes: Tensor
    ) -> Tensor:
        """Correct ``loss_cls``, and return the confidence of every box."""
        confidence = torch.ones_like(scores[:, 0], requires_grad=False)
        if self.classification_weighting is not None:
            chosen = self.classification_weighting.chosen(classes).nonzero().squeeze(1)
            logits, targets = scores[chosen], classes[chosen]
            plain = F.cross_entropy(logits, targets, reduction="none")
            difference, weights = self.classification_weighting(plain, targets, logits)
            scale = self.loss_weight.get("loss_cls", 1.0) / max(len(classes), 1)
            losses["loss_cls"] = losses["loss_cls"] + scale * difference
            confidence[chosen] = weights.to(confidence.dtype)
        return confidence

    def _correct_regression(
        self, losses: dict[str, Tensor], deltas: Tensor, classes: Tensor, proposals: list[Instances]
    ) -> None:
        """Correct ``loss_box_reg``; only foreground boxes have a regression loss."""
        assert self.box_weighting is not None
        foreground = ((classes >= 0) & (classes < self.num_classes)).nonzero().squeeze(1)
        boxes = cat([p.proposal_boxes.tensor for p in proposals] or [deltas.new_zeros(0, 4)])
        # An image without annotations has no gt_boxes, and no foreground that would need them.
        targets = cat(
            [(p.gt_boxes if p.has("gt_boxes") else p.proposal_boxes).tensor for p in proposals]
            or [deltas.new_zeros(0, 4)]
        )
        own = deltas[foreground]
        if deltas.shape[1] != boxes.shape[1]:
            per_class = own.view(len(own), self.num_classes, boxes.shape[1])
            own = per_class[torch.arange(len(own), device=own.device), classes[foreground]]
        plain = box_losses(
            self.box_reg_loss_type,
            self.box2box_transform,
            own,
            boxes[foreground],
            targets[foreground],
            self.smooth_l1_beta,
        )
        difference = (self.box_weighting(plain) - plain).sum()
        scale = self.loss_weight.get("loss_box_reg", 1.0) / max(len(classes), 1)
        losses["loss_box_reg"] = losses["loss_box_reg"] + scale * difference

    @torch.no_grad()
    def _observe(
        self, scores: Tensor, classes: Tensor, confidence: Tensor, proposals: list[Instances]
    ) -> Observation | None:
        if not any(p.has("gt_ids") for p in proposals):
            return None
        # An image without annotations has no gt_ids; all its boxes are background.
        ids = cat([p.gt_ids if p.has("gt_ids") else p.gt_classes for p in proposals])
        foreground = (classes >= 0) & (classes < self.num_classes)
        probabilities = scores[foreground].float().softmax(-1)[:, :-1]
        return Observation(ids[foreground], confidence[foreground], probabilities)

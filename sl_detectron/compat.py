"""The seam to the installed detectron2: what 0.5 and later versions name or place differently."""

from typing import Any

import fvcore.nn
from detectron2.config import CfgNode
from detectron2.utils import events
from torch import Tensor


def current_storage() -> Any | None:
    """The event storage of a running training, None outside of one."""
    # has_event_storage came after 0.5; both versions keep the stack under this name.
    return events.get_event_storage() if events._CURRENT_STORAGE_STACK else None


def uses_sigmoid_classification(cfg: CfgNode) -> bool:
    """Whether Fast R-CNN's classification is a sigmoid per class (an option since 0.6)."""
    box_head = cfg.MODEL.ROI_BOX_HEAD
    return bool(box_head.get("USE_SIGMOID_CE", False) or box_head.get("USE_FED_LOSS", False))


def box_losses(
    loss_type: str, transform: Any, deltas: Tensor, boxes: Tensor, targets: Tensor, beta: float
) -> Tensor:
    """Regression loss of each box, as detectron2 sums it: (M,).

    Args:
        loss_type: smooth_l1 | giou | diou | ciou, the last two if the installed fvcore has them.
        transform: detectron2's Box2BoxTransform.
        deltas: (M, 4) predicted deltas.
        boxes: (M, 4) proposals or anchors.
        targets: (M, 4) ground-truth boxes.
        beta: where smooth L1 turns from quadratic to linear.
    """
    if loss_type == "smooth_l1":
        wanted = transform.get_deltas(boxes, targets)
        losses: Tensor = fvcore.nn.smooth_l1_loss(deltas, wanted, beta, reduction="none").sum(-1)
        return losses
    function = _iou_losses().get(loss_type)
    if function is None:
        known = ", ".join(("smooth_l1", *_iou_losses()))
        raise ValueError(f"BBOX_REG_LOSS_TYPE is {loss_type!r}, expected one of {known}")
    iou_losses: Tensor = function(transform.apply_deltas(deltas, boxes), targets, reduction="none")
    return iou_losses


def _iou_losses() -> dict[str, Any]:
    found = {"giou": fvcore.nn.giou_loss}
    try:
        from detectron2.layers import ciou_loss, diou_loss
    except ImportError:
        return found
    return {**found, "diou": diou_loss, "ciou": ciou_loss}

"""ROI heads of detectron2 with ``RobustOutputLayers`` in the place of their predictor."""

from typing import Any

from detectron2.config import CfgNode
from detectron2.layers import ShapeSpec
from detectron2.modeling.roi_heads import (
    ROI_HEADS_REGISTRY,
    CascadeROIHeads,
    Res5ROIHeads,
    StandardROIHeads,
)

from sl_detectron.fast_rcnn import RobustOutputLayers


@ROI_HEADS_REGISTRY.register()
class RobustROIHeads(StandardROIHeads):
    """StandardROIHeads (FPN) with robust losses."""

    @classmethod
    def _init_box_head(cls, cfg: CfgNode, input_shape: dict[str, ShapeSpec]) -> dict[str, Any]:
        parts: dict[str, Any] = super()._init_box_head(cfg, input_shape)
        parts["box_predictor"] = RobustOutputLayers(cfg, parts["box_head"].output_shape)
        return parts


@ROI_HEADS_REGISTRY.register()
class RobustRes5ROIHeads(Res5ROIHeads):
    """Res5ROIHeads (C4) with robust losses."""

    @classmethod
    def from_config(cls, cfg: CfgNode, input_shape: dict[str, ShapeSpec]) -> dict[str, Any]:
        """Arguments of __init__ from a config."""
        parts: dict[str, Any] = super().from_config(cfg, input_shape)
        channels = parts["box_predictor"].cls_score.in_features
        parts["box_predictor"] = RobustOutputLayers(cfg, ShapeSpec(channels, height=1, width=1))
        return parts


@ROI_HEADS_REGISTRY.register()
class RobustCascadeROIHeads(CascadeROIHeads):
    """CascadeROIHeads with robust losses; every stage has its own thresholds."""

    @classmethod
    def _init_box_head(cls, cfg: CfgNode, input_shape: dict[str, ShapeSpec]) -> dict[str, Any]:
        parts: dict[str, Any] = super()._init_box_head(cfg, input_shape)
        parts["box_predictors"] = [
            RobustOutputLayers(cfg, head.output_shape, box2box_transform=stock.box2box_transform)
            for head, stock in zip(parts["box_heads"], parts["box_predictors"], strict=True)
        ]
        return parts

"""Detectors small enough for tests, stock and robust, and random images to train them on."""

from typing import Any

import torch
from detectron2.config import CfgNode, get_cfg
from detectron2.modeling import build_model
from detectron2.structures import Boxes, Instances
from detectron2.utils.events import EventStorage
from torch import Tensor, nn

from sl_detectron import add_robust_loss_config

NUM_CLASSES = 5
KINDS = ("FPN", "C4", "Cascade", "RetinaNet")
_STOCK = {"FPN": "StandardROIHeads", "C4": "Res5ROIHeads", "Cascade": "CascadeROIHeads"}
_ROBUST = {"FPN": "RobustROIHeads", "C4": "RobustRes5ROIHeads", "Cascade": "RobustCascadeROIHeads"}


def config(kind: str, *options: Any, robust: bool = True) -> CfgNode:
    """A small config of one kind of detector, from detectron2's defaults."""
    cfg = get_cfg()
    add_robust_loss_config(cfg)
    cfg.MODEL.DEVICE = "cpu"
    cfg.MODEL.WEIGHTS = ""
    cfg.MODEL.RESNETS.DEPTH = 18
    cfg.MODEL.RESNETS.RES2_OUT_CHANNELS = 64
    cfg.MODEL.RPN.POST_NMS_TOPK_TRAIN = 30
    cfg.MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE = 24
    cfg.MODEL.ROI_HEADS.NUM_CLASSES = NUM_CLASSES
    cfg.MODEL.RETINANET.NUM_CLASSES = NUM_CLASSES
    if kind == "C4":
        # R18 has no bottlenecks, which the C4 head is made of.
        cfg.MODEL.RESNETS.DEPTH = 50
        cfg.MODEL.RESNETS.RES2_OUT_CHANNELS = 32
        cfg.MODEL.RESNETS.WIDTH_PER_GROUP = 8
        cfg.MODEL.RESNETS.STEM_OUT_CHANNELS = 16
    else:
        features = (
            ["res3", "res4", "res5"] if kind == "RetinaNet" else ["res2", "res3", "res4", "res5"]
        )
        cfg.MODEL.RESNETS.OUT_FEATURES = features
        cfg.MODEL.FPN.IN_FEATURES = features
        cfg.MODEL.FPN.OUT_CHANNELS = 16
    if kind == "RetinaNet":
        cfg.MODEL.META_ARCHITECTURE = "RobustRetinaNet" if robust else "RetinaNet"
        cfg.MODEL.BACKBONE.NAME = "build_retinanet_resnet_fpn_backbone"
        cfg.MODEL.ANCHOR_GENERATOR.SIZES = [[16], [32], [64], [128], [256]]
    else:
        cfg.MODEL.ROI_HEADS.NAME = (_ROBUST if robust else _STOCK)[kind]
    if kind in ("FPN", "Cascade"):
        cfg.MODEL.BACKBONE.NAME = "build_resnet_fpn_backbone"
        cfg.MODEL.ANCHOR_GENERATOR.SIZES = [[16], [32], [64], [128], [256]]
        cfg.MODEL.RPN.IN_FEATURES = ["p2", "p3", "p4", "p5", "p6"]
        cfg.MODEL.ROI_HEADS.IN_FEATURES = ["p2", "p3", "p4", "p5"]
        cfg.MODEL.ROI_BOX_HEAD.NAME = "FastRCNNConvFCHead"
        cfg.MODEL.ROI_BOX_HEAD.NUM_FC = 1
        cfg.MODEL.ROI_BOX_HEAD.FC_DIM = 32
        cfg.MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG = kind == "Cascade"
    cfg.merge_from_list(list(options))
    return cfg


def build(cfg: CfgNode, like: nn.Module | None = None) -> Any:
    """A model in training mode, with the weights of another one."""
    torch.manual_seed(0)
    model = build_model(cfg).train()
    if like is not None:
        model.load_state_dict(like.state_dict(), strict=False)
    return model


def images(boxes_per_image: tuple[int, ...] = (3, 2), seed: int = 0) -> list[dict[str, Any]]:
    """Random images with so many random annotations each."""
    generator = torch.Generator().manual_seed(seed)
    inputs = []
    for index, count in enumerate(boxes_per_image):
        corner = torch.rand(count, 2, generator=generator) * 50
        size = 14 + torch.rand(count, 2, generator=generator) * 30
        instances = Instances((96, 96))
        instances.gt_boxes = Boxes(torch.cat((corner, corner + size), dim=1))
        instances.gt_classes = torch.randint(0, NUM_CLASSES, (count,), generator=generator)
        instances.gt_ids = torch.arange(count) + 100 * index
        image = torch.rand(3, 96, 96, generator=generator) * 255
        inputs.append({"image": image, "instances": instances, "height": 96, "width": 96})
    return inputs


def losses_and_gradients(
    model: nn.Module, inputs: list[dict[str, Any]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One training step without the update; sampling of boxes starts from the same seed."""
    torch.manual_seed(1)
    model.zero_grad()
    with EventStorage():
        losses: dict[str, Tensor] = model(inputs)
    torch.stack(list(losses.values())).sum().backward()
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return {name: value.detach() for name, value in losses.items()}, gradients

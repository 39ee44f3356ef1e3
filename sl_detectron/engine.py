"""The trainer: detectron2's DefaultTrainer with ids, recorded confidences and an evaluator."""

from typing import Any

import torch
from detectron2.config import CfgNode
from detectron2.data import MetadataCatalog, build_detection_train_loader
from detectron2.data.build import get_detection_dataset_dicts
from detectron2.engine import DefaultTrainer, HookBase
from detectron2.evaluation import COCOEvaluator, DatasetEvaluator, PascalVOCDetectionEvaluator
from detectron2.solver.build import get_default_optimizer_params, maybe_add_gradient_clipping

from sl_detectron.annotation_confidence import AnnotationConfidence, RecordAnnotationConfidence
from sl_detectron.annotation_ids import IdDatasetMapper, add_annotation_ids
from sl_detectron.digit_scenes import register_digit_scenes
from sl_detectron.noisy_datasets import register_on_sight
from sl_detectron.voc_datasets import register_voc


def register_datasets(cfg: CfgNode) -> None:
    """Register what a config names: digit scenes, VOC-style folders, noisy versions."""
    register_digit_scenes()
    for entry in cfg.DATASETS.VOC_STYLE:
        try:
            name, dirname, split, class_names = entry
        except ValueError:
            raise ValueError(
                f"DATASETS.VOC_STYLE has {entry!r}, expected [name, folder, split, [class, ...]]"
            ) from None
        if name not in MetadataCatalog.list():
            register_voc(name, dirname, split, class_names, cfg.DATASETS.VOC_STYLE_ON_ERROR)
    register_on_sight(cfg.DATASETS.TRAIN)


class RobustTrainer(DefaultTrainer):
    """DefaultTrainer that knows each annotation by an id and records its confidence."""

    def build_train_loader(self, cfg: CfgNode) -> Any:
        """detectron2's loader over data with annotation ids."""
        self.train_dicts: list[dict[str, Any]] = get_detection_dataset_dicts(
            cfg.DATASETS.TRAIN, filter_empty=cfg.DATALOADER.FILTER_EMPTY_ANNOTATIONS
        )
        add_annotation_ids(self.train_dicts)
        mapper = IdDatasetMapper(cfg, is_train=True)
        return build_detection_train_loader(cfg, mapper=mapper, dataset=self.train_dicts)

    def build_hooks(self) -> list[HookBase]:
        """The default hooks, after the one that records confidences."""
        cfg = self.cfg
        is_retinanet = "RetinaNet" in cfg.MODEL.META_ARCHITECTURE
        part = cfg.MODEL.RETINANET if is_retinanet else cfg.MODEL.ROI_HEADS
        ids = (a["id"] for d in self.train_dicts for a in d.get("annotations", ()))
        record = AnnotationConfidence(ids, part.NUM_CLASSES)
        self.checkpointer.add_checkpointable("annotation_confidence", record)
        period = cfg.SOLVER.CHECKPOINT_PERIOD
        own = RecordAnnotationConfidence(record, self.train_dicts, period, cfg.OUTPUT_DIR)
        return [own, *super().build_hooks()]

    @classmethod
    def build_optimizer(cls, cfg: CfgNode, model: torch.nn.Module) -> torch.optim.Optimizer:
        """detectron2's SGD, or AdamW."""
        if cfg.SOLVER.OPTIMIZER == "sgd":
            return super().build_optimizer(cfg, model)  # type: ignore[no-any-return]
        if cfg.SOLVER.OPTIMIZER != "adamw":
            raise ValueError(f"SOLVER.OPTIMIZER is {cfg.SOLVER.OPTIMIZER!r}, expected sgd or adamw")
        parameters = get_default_optimizer_params(
            model, base_lr=cfg.SOLVER.BASE_LR, weight_decay_norm=cfg.SOLVER.WEIGHT_DECAY_NORM
        )
        optimizer = maybe_add_gradient_clipping(cfg, torch.optim.AdamW)(
            parameters, lr=cfg.SOLVER.BASE_LR, weight_decay=cfg.SOLVER.WEIGHT_DECAY
        )
        assert isinstance(optimizer, torch.optim.Optimizer)
        return optimizer

    @classmethod
    def build_evaluator(cls, cfg: CfgNode, dataset_name: str) -> DatasetEvaluator:
        """VOC's own evaluation for VOC, COCO's for everything else."""
        kind = MetadataCatalog.get(dataset_name).get("evaluator_type", "coco")
        if kind == "pascal_voc":
            return PascalVOCDetectionEvaluator(dataset_name)
        if kind != "coco":
            raise ValueError(
                f"{dataset_name}: evaluator_type is {kind!r}, expected coco or pascal_voc"
            )
        # The fast implementation needs detectron2's compiled part.
        return COCOEvaluator(dataset_name, output_dir=cfg.OUTPUT_DIR, use_fast_impl=False)

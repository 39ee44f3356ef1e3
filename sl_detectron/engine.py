"""The trainer: detectron2's DefaultTrainer with ids, recorded confidences and an evaluator."""

import weakref
from pathlib import Path
from typing import Any

import torch
from detectron2.config import CfgNode
from detectron2.data import MetadataCatalog, build_detection_train_loader
from detectron2.data.build import get_detection_dataset_dicts
from detectron2.engine import DefaultTrainer, HookBase
from detectron2.evaluation import COCOEvaluator, DatasetEvaluator, PascalVOCDetectionEvaluator
from detectron2.solver.build import get_default_optimizer_params, maybe_add_gradient_clipping
from detectron2.utils import comm

from sl_core import SuperLoss
from sl_detectron.annotation_confidence import AnnotationConfidence, RecordAnnotationConfidence
from sl_detectron.annotation_ids import IdDatasetMapper, add_annotation_ids
from sl_detectron.checkpoint import AtomicCheckpointer
from sl_detectron.digit_scenes import register_digit_scenes
from sl_detectron.noisy_datasets import clean_name, register_on_sight
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


def training_dicts(cfg: CfgNode) -> list[dict[str, Any]]:
    """The training set as detectron2 loads it, with an id for every annotation."""
    keypoints = cfg.MODEL.ROI_KEYPOINT_HEAD.MIN_KEYPOINTS_PER_IMAGE if cfg.MODEL.KEYPOINT_ON else 0
    proposals = cfg.DATASETS.PROPOSAL_FILES_TRAIN if cfg.MODEL.LOAD_PROPOSALS else ()
    dicts = []
    for index, name in enumerate(cfg.DATASETS.TRAIN):
        own = get_detection_dataset_dicts(
            [name],
            filter_empty=cfg.DATALOADER.FILTER_EMPTY_ANNOTATIONS,
            min_keypoints=keypoints,
            proposal_files=[proposals[index]] if proposals else None,
        )
        add_annotation_ids(own, name)
        dicts += own
    return dicts


class RobustTrainer(DefaultTrainer):
    """DefaultTrainer that knows each annotation by an id and records its confidence."""

    @classmethod
    def build_train_loader(cls, cfg: CfgNode) -> Any:
        """detectron2's loader over data with annotation ids."""
        mapper = IdDatasetMapper(cfg, is_train=True)
        return build_detection_train_loader(cfg, mapper=mapper, dataset=training_dicts(cfg))

    def resume_or_load(self, resume: bool = True) -> None:
        """As in detectron2; a new training from old weights starts with new thresholds."""
        super().resume_or_load(resume)
        if not (resume and self.checkpointer.has_checkpoint()):
            for module in self._trainer.model.modules():
                if isinstance(module, SuperLoss):
                    module.reset()

    def build_hooks(self) -> list[HookBase]:
        """The default hooks, after the one that records confidences."""
        # The hooks are built when the trainer's parts are there, and one of them saves them.
        self.checkpointer = AtomicCheckpointer(
            self._trainer.model, self.cfg.OUTPUT_DIR, trainer=weakref.proxy(self)
        )
        hooks: list[HookBase] = super().build_hooks()
        cfg = self.cfg
        if not cfg.MODEL.ROBUST_LOSS.RECORD_ANNOTATIONS:
            return hooks
        is_retinanet = "RetinaNet" in cfg.MODEL.META_ARCHITECTURE
        part = cfg.MODEL.RETINANET if is_retinanet else cfg.MODEL.ROI_HEADS
        dicts = training_dicts(cfg)
        ids = (a["id"] for d in dicts for a in d.get("annotations", ()))
        record = AnnotationConfidence(ids, part.NUM_CLASSES)
        self.checkpointer.add_checkpointable("annotation_confidence", record)
        period = cfg.SOLVER.CHECKPOINT_PERIOD
        return [RecordAnnotationConfidence(record, dicts, period, cfg.OUTPUT_DIR), *hooks]

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
        name = clean_name(dataset_name)
        kind = MetadataCatalog.get(name).get("evaluator_type", "coco")
        if kind == "pascal_voc":
            return PascalVOCDetectionEvaluator(name)
        if kind != "coco":
            raise ValueError(f"{name}: evaluator_type is {kind!r}, expected coco or pascal_voc")
        # COCOEvaluator would use again what it once made of the annotations, changed or not.
        if comm.is_main_process():
            Path(cfg.OUTPUT_DIR, f"{name}_coco_format.json").unlink(missing_ok=True)
        comm.synchronize()
        # The fast implementation needs detectron2's compiled part.
        return COCOEvaluator(name, output_dir=cfg.OUTPUT_DIR, use_fast_impl=False)

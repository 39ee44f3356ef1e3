"""detectron2 plugin for training on partly wrong labels; importing it registers its parts."""

from sl_detectron.config import add_robust_loss_config as add_robust_loss_config
from sl_detectron.config import merge_options as merge_options
from sl_detectron.noisy_datasets import register_noisy as register_noisy
from sl_detectron.retinanet import RobustRetinaNet as RobustRetinaNet
from sl_detectron.roi_heads import RobustCascadeROIHeads as RobustCascadeROIHeads
from sl_detectron.roi_heads import RobustRes5ROIHeads as RobustRes5ROIHeads
from sl_detectron.roi_heads import RobustROIHeads as RobustROIHeads
from sl_detectron.voc_datasets import register_voc as register_voc

"""The config of a metric-learning training; YAML files on top of it, with ``_BASE_``."""

from pathlib import Path

from fvcore.common.config import CfgNode

from sl_retrieval.config_files import check_above_zero, check_at_least, check_choices, merge_into
from sl_retrieval.metric_methods import METHODS
from sl_retrieval.square_images import AUGMENTATIONS


def get_metric_cfg() -> CfgNode:
    """The defaults: bspml.txt's, where it gives them."""
    cfg = CfgNode()
    # contrastive | ms | spms (self-paced, no balance) | bspml | ms_superloss
    cfg.METHOD = "bspml"

    cfg.MODEL = CfgNode()
    # convnet4 | a backbone of torchvision: resnet50, ...
    cfg.MODEL.ARCHITECTURE = "resnet50"
    # Dimensions of the embedding.
    cfg.MODEL.EMBEDDING = 512
    # none (random) | torchvision (from torch hub's folder, nothing is downloaded) | a file.
    # With --eval-only: a checkpoint of this tool.
    cfg.MODEL.WEIGHTS = "torchvision"
    # frozen (statistics of the weights) | train (for a training from scratch).
    cfg.MODEL.BATCH_NORM = "frozen"
    # "" takes a GPU if there is one.
    cfg.MODEL.DEVICE = ""

    cfg.LOSS = CfgNode()
    # Multi-similarity: alpha, beta, rho, and epsilon of the mining.
    cfg.LOSS.ALPHA = 2.0
    cfg.LOSS.BETA = 50.0
    cfg.LOSS.BASE = 1.0
    cfg.LOSS.EPSILON = 0.1
    # Contrastive: the cosine above which a positive pair, below which a negative pair is at rest.
    cfg.LOSS.POSITIVE_MARGIN = 1.0
    cfg.LOSS.NEGATIVE_MARGIN = 0.0

    # For METHOD ms_superloss.
    cfg.SUPERLOSS = CfgNode()
    # "avg" | "expavg" | a number; None means "expavg".
    cfg.SUPERLOSS.TAU = None
    # "auto" | a number above 0; None means "auto".
    cfg.SUPERLOSS.LAMBDA = None
    # Training steps over which SuperLoss sets in; at first it is the plain loss.
    cfg.SUPERLOSS.WARMUP_STEPS = 0

    # For METHOD spms and bspml.
    cfg.SELF_PACED = CfgNode()
    # The age parameter of the first update, by what it is multiplied after each, its limit; in
    # units of what the pairs of a sample cost on average if all weights are 1 (history:
    # pair_cost). So it is about the part of the samples that are kept.
    cfg.SELF_PACED.AGE_START = 0.6
    cfg.SELF_PACED.AGE_MULTIPLIER = 1.01
    cfg.SELF_PACED.AGE_MAX = 0.7
    # mu of bspml.
    cfg.SELF_PACED.BALANCE = 1.0
    # An update is PASSES x N steps, N the number of samples; gamma, their learning rate.
    cfg.SELF_PACED.PASSES = 100
    cfg.SELF_PACED.LEARNING_RATE = 1.0

    cfg.DATASETS = CfgNode()
    # Names of the catalog, TRAIN also with noise: cub200_train, my_set_sym40_s0.
    cfg.DATASETS.TRAIN = "cub200_train"
    cfg.DATASETS.TEST = "cub200_test"
    # Data sets to register: [name, folder], one sub-folder for each class;
    # [name, folder], <group>/<class>/<images>, or [name, folder, folder whose groups are left out];
    # [name, list file, image folder] or [name, list file, image folder, split];
    # [name, pickle of cirtorch, image folder, split].
    cfg.DATASETS.FOLDERS = []
    cfg.DATASETS.TWO_LEVELS = []
    cfg.DATASETS.LISTS = []
    cfg.DATASETS.PICKLES = []
    # Reports of tools/check_images.py; the images listed there are left out, if they are not more
    # than this part of a data set.
    cfg.DATASETS.UNREADABLE = []
    cfg.DATASETS.MAX_UNREADABLE = 0.01

    cfg.INPUT = CfgNode()
    # Images are squares of this side.
    cfg.INPUT.IMAGE_SIZE = 224
    # In training: none | crop_flip.
    cfg.INPUT.AUGMENT = "crop_flip"
    # Decode all images once, at the start; needs AUGMENT none.
    cfg.INPUT.IN_MEMORY = False

    # A batch is CLASSES x PER_CLASS images: P and K, also of the weights' updates.
    cfg.SAMPLER = CfgNode()
    cfg.SAMPLER.CLASSES = 16
    cfg.SAMPLER.PER_CLASS = 4

    cfg.SOLVER = CfgNode()
    # adam | sgd
    cfg.SOLVER.OPTIMIZER = "sgd"
    cfg.SOLVER.BASE_LR = 5e-6
    cfg.SOLVER.WEIGHT_DECAY = 0.0
    cfg.SOLVER.MOMENTUM = 0.9
    cfg.SOLVER.EPOCHS = 50
    cfg.SOLVER.STEPS_PER_EPOCH = 100
    # Epoch k, from 0, runs at BASE_LR exp(-DECAY (k + 1)).
    cfg.SOLVER.DECAY = 0.0

    cfg.TEST = CfgNode()
    # Every so many epochs, and after the last.
    cfg.TEST.PERIOD = 5
    cfg.TEST.BATCH_SIZE = 64
    # K of Recall@K.
    cfg.TEST.RECALLS = [1, 2, 4, 8]

    cfg.DATALOADER = CfgNode()
    cfg.DATALOADER.NUM_WORKERS = 4

    cfg.SEED = 0
    cfg.OUTPUT_DIR = "output/retrieval/metric"
    return cfg


def load_metric_config(file: str | Path | None, options: list[str]) -> CfgNode:
    """Defaults, then a YAML file, then ``KEY value`` options; nothing of them is executed."""
    cfg = get_metric_cfg()
    merge_into(cfg, file, options, ("SUPERLOSS.TAU", "SUPERLOSS.LAMBDA"))
    check_metric_config(cfg)
    cfg.freeze()
    return cfg


_CHOICES = {
    "METHOD": METHODS,
    "MODEL.BATCH_NORM": ("frozen", "train"),
    "INPUT.AUGMENT": AUGMENTATIONS,
    "SOLVER.OPTIMIZER": ("adam", "sgd"),
}
_AT_LEAST = {
    "MODEL.EMBEDDING": 1,
    "SUPERLOSS.WARMUP_STEPS": 0,
    "SELF_PACED.AGE_MULTIPLIER": 1,
    "SELF_PACED.BALANCE": 0,
    "SELF_PACED.PASSES": 1,
    "INPUT.IMAGE_SIZE": 1,
    "SAMPLER.CLASSES": 2,
    "SAMPLER.PER_CLASS": 2,
    "SOLVER.WEIGHT_DECAY": 0,
    "SOLVER.EPOCHS": 1,
    "SOLVER.STEPS_PER_EPOCH": 1,
    "SOLVER.DECAY": 0,
    "TEST.PERIOD": 1,
    "TEST.BATCH_SIZE": 1,
    "DATALOADER.NUM_WORKERS": 0,
    "SEED": 0,
}
_ABOVE_ZERO = (
    "LOSS.ALPHA",
    "LOSS.BETA",
    "SELF_PACED.AGE_START",
    "SELF_PACED.AGE_MAX",
    "SELF_PACED.LEARNING_RATE",
    "SOLVER.BASE_LR",
    "DATASETS.MAX_UNREADABLE",
)


def check_metric_config(cfg: CfgNode) -> None:
    """Raise ValueError, naming the key, for values that no part of the program checks later."""
    check_choices(cfg, _CHOICES)
    check_at_least(cfg, _AT_LEAST)
    check_above_zero(cfg, _ABOVE_ZERO)
    if not 0 <= cfg.SOLVER.MOMENTUM < 1:
        raise ValueError(f"SOLVER.MOMENTUM is {cfg.SOLVER.MOMENTUM}, expected a number in [0, 1)")
    recalls = cfg.TEST.RECALLS
    if not recalls or not all(isinstance(k, int) and k >= 1 for k in recalls):
        raise ValueError(f"TEST.RECALLS is {recalls}, expected one or more whole numbers above 0")
    if cfg.INPUT.IN_MEMORY and cfg.INPUT.AUGMENT != "none":
        raise ValueError(
            f"INPUT.IN_MEMORY is True with INPUT.AUGMENT {cfg.INPUT.AUGMENT!r}, expected 'none': "
            "what is drawn anew each time cannot be kept"
        )

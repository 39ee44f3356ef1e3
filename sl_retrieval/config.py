"""The config of a retrieval training; YAML files on top of it, with ``_BASE_``."""

from pathlib import Path

from fvcore.common.config import CfgNode

from sl_retrieval.config_files import check_above_zero, check_at_least, check_choices, merge_into


def get_cfg() -> CfgNode:
    """The defaults: cirtorch's, with a plain contrastive loss."""
    cfg = CfgNode()

    cfg.MODEL = CfgNode()
    # A backbone of torchvision: alexnet | vgg* | resnet* | densenet* | squeezenet*.
    cfg.MODEL.ARCHITECTURE = "resnet50"
    # gem | gemmp | mac | spoc | rmac
    cfg.MODEL.POOLING = "gem"
    # Whether the pooling is done in regions; linear layers before and after the pooling.
    cfg.MODEL.REGIONAL = False
    cfg.MODEL.LOCAL_WHITENING = False
    cfg.MODEL.WHITENING = False
    # none (random) | torchvision (from torch hub's folder, nothing is downloaded) | a file: a
    # checkpoint of ours or of cirtorch, or a state dict.
    cfg.MODEL.WEIGHTS = "torchvision"
    # frozen (statistics of the weights, as in cirtorch) | train (for a training from scratch).
    cfg.MODEL.BATCH_NORM = "frozen"
    # "" takes a GPU if there is one.
    cfg.MODEL.DEVICE = ""

    cfg.LOSS = CfgNode()
    # contrastive | triplet
    cfg.LOSS.NAME = "contrastive"
    # None means cirtorch's: 0.7 for contrastive, 0.1 for triplet.
    cfg.LOSS.MARGIN = None
    cfg.LOSS.ROBUST = CfgNode()
    # none | superloss | cce | mae | gce | gce_trunc
    cfg.LOSS.ROBUST.NAME = "none"
    # SuperLoss's threshold: "avg" | "expavg" | a number; None means "avg".
    cfg.LOSS.ROBUST.TAU = None
    # SuperLoss's regularisation: "auto" | a number above 0; None means 0.05, the paper's.
    cfg.LOSS.ROBUST.LAMBDA = None
    # Factor of an automatic LAMBDA.
    cfg.LOSS.ROBUST.LAMBDA_SCALE = 1.0
    # Part of the old threshold that "expavg" keeps.
    cfg.LOSS.ROBUST.MOMENTUM = 0.9
    # Training steps over which SuperLoss sets in; at first it is the plain loss.
    cfg.LOSS.ROBUST.WARMUP_STEPS = 0
    # Which pairs share a threshold: kind (positive, negative) | all.
    cfg.LOSS.ROBUST.TAU_SCOPE = "kind"
    # Which pairs of the contrastive loss are weighted: all | positive.
    cfg.LOSS.ROBUST.PAIRS = "all"
    # Options of gce and gce_trunc; gce_trunc.
    cfg.LOSS.ROBUST.Q = 0.7
    cfg.LOSS.ROBUST.K = 0.5

    cfg.DATASETS = CfgNode()
    # Names of the catalog, also with noise: landmarks_full_train, my_set_sym40_s0.
    cfg.DATASETS.TRAIN = "retrieval-SfM-120k_train"
    # Labelled images for the validation; "" skips it.
    cfg.DATASETS.VAL = "retrieval-SfM-120k_val"
    # What is evaluated after the training: names with a ground truth below DATA_ROOT
    # (roxford5k, rparis6k, your own), or names of the catalog (each image is a query once).
    cfg.DATASETS.TEST = []
    # Data sets to register: [name, folder], one sub-folder for each landmark;
    # [name, list file, image folder] or [name, list file, image folder, split];
    # [name, pickle of cirtorch, image folder, split].
    cfg.DATASETS.FOLDERS = []
    cfg.DATASETS.LISTS = []
    cfg.DATASETS.PICKLES = []
    # Folder of the data sets with a ground truth: <DATA_ROOT>/<name>/gnd_<name>.pkl, .../jpg.
    cfg.DATASETS.DATA_ROOT = "datasets/test"
    # Reports of tools/check_images.py; the images listed there are left out, if they are not more
    # than this part of a data set.
    cfg.DATASETS.UNREADABLE = []
    cfg.DATASETS.MAX_UNREADABLE = 0.01

    cfg.INPUT = CfgNode()
    # Longest side of an image, in training, validation and test.
    cfg.INPUT.IMAGE_SIZE = 1024

    cfg.MINING = CfgNode()
    # Tuples of an epoch, images to look for negatives in, negatives of a tuple.
    cfg.MINING.NUM_QUERIES = 2000
    cfg.MINING.POOL_SIZE = 20000
    cfg.MINING.NEGATIVES = 5
    # The first epochs, whose negatives are drawn at random: a start from scratch needs it.
    cfg.MINING.RANDOM_EPOCHS = 0

    cfg.SOLVER = CfgNode()
    # adam | sgd
    cfg.SOLVER.OPTIMIZER = "adam"
    cfg.SOLVER.BASE_LR = 1e-6
    cfg.SOLVER.WEIGHT_DECAY = 1e-6
    cfg.SOLVER.MOMENTUM = 0.9
    # 0 leaves it at the warm-up.
    cfg.SOLVER.EPOCHS = 100
    # Epoch k, from 0, runs at BASE_LR exp(-DECAY (k + 1)).
    cfg.SOLVER.DECAY = 0.01
    # Tuples of an optimiser step, and how many of them a process computes at once; the rest is
    # accumulated.
    cfg.SOLVER.BATCH_SIZE = 5
    cfg.SOLVER.TUPLES_PER_FORWARD = 1
    # Mixed precision, on a GPU.
    cfg.SOLVER.AMP = False

    # For a start without pretrained weights (sl_retrieval/warmup.py): so many epochs of
    # classification before the first epoch of tuples. "" takes the training set.
    cfg.WARMUP = CfgNode()
    cfg.WARMUP.EPOCHS = 0
    cfg.WARMUP.DATASET = ""
    # Side of the square crops; 0 means INPUT.IMAGE_SIZE.
    cfg.WARMUP.IMAGE_SIZE = 0
    cfg.WARMUP.BASE_LR = 1e-3
    cfg.WARMUP.BATCH_SIZE = 32
    # SuperLoss's regularisation for the images of the warm-up; None weights them equally.
    cfg.WARMUP.LAMBDA = None

    cfg.VALIDATION = CfgNode()
    # Every so many epochs, and after the last.
    cfg.VALIDATION.PERIOD = 1
    # Tuples for the loss and pool for their negatives; queries for the mAP.
    cfg.VALIDATION.NUM_QUERIES = 2000
    cfg.VALIDATION.POOL_SIZE = 20000
    cfg.VALIDATION.MAP_QUERIES = 500
    # What makes model_best.pth.tar: map (highest) | loss (lowest, as in cirtorch).
    cfg.VALIDATION.BEST_BY = "map"

    cfg.TEST = CfgNode()
    cfg.TEST.SCALES = [1.0]
    cfg.TEST.BATCH_SIZE = 16

    cfg.DATALOADER = CfgNode()
    cfg.DATALOADER.NUM_WORKERS = 4

    cfg.SEED = 0
    cfg.OUTPUT_DIR = "output/retrieval"
    return cfg


def load_config(file: str | Path | None, options: list[str]) -> CfgNode:
    """Defaults, then a YAML file, then ``KEY value`` options; nothing of them is executed."""
    cfg = get_cfg()
    merge_into(cfg, file, options, ("LOSS.ROBUST.TAU", "LOSS.ROBUST.LAMBDA", "LOSS.MARGIN"))
    check_config(cfg)
    cfg.freeze()
    return cfg


_CHOICES = {
    "MODEL.BATCH_NORM": ("frozen", "train"),
    "LOSS.ROBUST.TAU_SCOPE": ("kind", "all"),
    "LOSS.ROBUST.PAIRS": ("all", "positive"),
    "SOLVER.OPTIMIZER": ("adam", "sgd"),
    "VALIDATION.BEST_BY": ("map", "loss"),
}
_ABOVE_ZERO = (
    "LOSS.MARGIN",
    "SOLVER.BASE_LR",
    "WARMUP.BASE_LR",
    "WARMUP.LAMBDA",
    "DATASETS.MAX_UNREADABLE",
)
_AT_LEAST = {
    "INPUT.IMAGE_SIZE": 1,
    "MINING.NUM_QUERIES": 1,
    "MINING.POOL_SIZE": 1,
    "MINING.NEGATIVES": 0,
    "MINING.RANDOM_EPOCHS": 0,
    "SOLVER.EPOCHS": 0,
    "SOLVER.BATCH_SIZE": 1,
    "SOLVER.TUPLES_PER_FORWARD": 1,
    "WARMUP.EPOCHS": 0,
    "WARMUP.BATCH_SIZE": 2,
    "WARMUP.IMAGE_SIZE": 0,
    "VALIDATION.PERIOD": 1,
    "VALIDATION.NUM_QUERIES": 1,
    "VALIDATION.POOL_SIZE": 1,
    "VALIDATION.MAP_QUERIES": 1,
    "TEST.BATCH_SIZE": 1,
    "DATALOADER.NUM_WORKERS": 0,
    "SEED": 0,
}


def check_config(cfg: CfgNode) -> None:
    """Raise ValueError, naming the key, for values that no part of the program checks later."""
    check_choices(cfg, _CHOICES)
    check_at_least(cfg, _AT_LEAST)
    check_above_zero(cfg, _ABOVE_ZERO)
    scales = cfg.TEST.SCALES
    if not scales or not all(isinstance(s, int | float) and s > 0 for s in scales):
        raise ValueError(f"TEST.SCALES is {scales}, expected one or more numbers above 0")
    if cfg.SOLVER.EPOCHS == 0 and cfg.WARMUP.EPOCHS == 0:
        raise ValueError("SOLVER.EPOCHS and WARMUP.EPOCHS are 0, expected one above 0")
    if cfg.VALIDATION.BEST_BY == "loss" and not cfg.DATASETS.VAL:
        raise ValueError('VALIDATION.BEST_BY is "loss", which needs DATASETS.VAL')

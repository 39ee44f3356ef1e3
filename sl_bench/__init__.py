"""The papers' experiments: one label or number per image, of which some are wrong."""

from sl_bench.config import get_cfg as get_cfg
from sl_bench.config import load_config as load_config
from sl_bench.criterion import Criterion as Criterion
from sl_bench.data_parameters import DataParameters as DataParameters
from sl_bench.engine import BenchTrainer as BenchTrainer
from sl_bench.label_correction import corrected_labels as corrected_labels
from sl_bench.networks import build_network as build_network
from sl_bench.noisy_data import load_data as load_data

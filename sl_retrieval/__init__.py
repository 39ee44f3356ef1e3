"""Image retrieval that trains on partly wrong labels; formats of cnnimageretrieval-pytorch."""

from sl_retrieval.checkpoint import load_checkpoint as load_checkpoint
from sl_retrieval.checkpoint import load_network as load_network
from sl_retrieval.checkpoint import save_checkpoint as save_checkpoint
from sl_retrieval.config import get_cfg as get_cfg
from sl_retrieval.config import load_config as load_config
from sl_retrieval.criterion import RobustCriterion as RobustCriterion
from sl_retrieval.data import RetrievalData as RetrievalData
from sl_retrieval.engine import RetrievalTrainer as RetrievalTrainer
from sl_retrieval.extraction import extract_descriptors as extract_descriptors
from sl_retrieval.ground_truth import GroundTruth as GroundTruth
from sl_retrieval.ground_truth import load_ground_truth as load_ground_truth
from sl_retrieval.mining import mine_negatives as mine_negatives
from sl_retrieval.network import ImageRetrievalNet as ImageRetrievalNet
from sl_retrieval.network import build_network as build_network
from sl_retrieval.pair_losses import contrastive_losses as contrastive_losses
from sl_retrieval.pair_losses import triplet_losses as triplet_losses
from sl_retrieval.reducer import SuperLossReducer as SuperLossReducer
from sl_retrieval.revisited import evaluate_classic as evaluate_classic
from sl_retrieval.revisited import evaluate_revisited as evaluate_revisited
from sl_retrieval.whitening import apply_whitening as apply_whitening
from sl_retrieval.whitening import learn_pca_whitening as learn_pca_whitening
from sl_retrieval.whitening import learn_whitening as learn_whitening

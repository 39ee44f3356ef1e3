"""The losses of metric learning by name, with one signature."""

from fvcore.common.config import CfgNode
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import ContrastiveLoss, MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch import Tensor, nn

from sl_retrieval.multi_similarity import WeightedMultiSimilarityLoss
from sl_retrieval.reducer import SuperLossReducer

METHODS = ("contrastive", "ms", "spms", "bspml", "ms_superloss")
SELF_PACED = ("spms", "bspml")


class UnweightedLoss(nn.Module):
    """A loss of pytorch-metric-learning, for which all samples weigh the same.

    Args:
        loss: of embeddings, labels and pairs.
        miner: of the pairs; None takes all.
    """

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.loss = loss
        self.miner = miner

    def forward(self, embeddings: Tensor, labels: Tensor, _weights: Tensor) -> Tensor:
        """The loss of a batch (B, D), (B,), a scalar."""
        pairs = None if self.miner is None else self.miner(embeddings, labels)
        value: Tensor = self.loss(embeddings, labels, pairs)
        return value


def build_method(cfg: CfgNode) -> UnweightedLoss | WeightedMultiSimilarityLoss:
    """The loss of METHOD; called with embeddings (B, D), labels (B,) and weights (B,).

    - contrastive: on cosines, margins as in the paper; all pairs, mean over those above 0.
    - ms: multi-similarity loss on informative pairs.
    - spms, bspml: the same, weighted by samples.
    - ms_superloss: ms, each anchor's loss weighted by SuperLoss.
    """
    options = cfg.LOSS
    if cfg.METHOD == "contrastive":
        return UnweightedLoss(
            ContrastiveLoss(
                options.POSITIVE_MARGIN, options.NEGATIVE_MARGIN, distance=CosineSimilarity()
            )
        )
    if cfg.METHOD in SELF_PACED:
        return WeightedMultiSimilarityLoss(
            options.ALPHA, options.BETA, options.BASE, options.EPSILON
        )
    reducer = None
    if cfg.METHOD == "ms_superloss":
        superloss = cfg.SUPERLOSS
        reducer = SuperLossReducer(
            "expavg" if superloss.TAU is None else superloss.TAU,
            "auto" if superloss.LAMBDA is None else superloss.LAMBDA,
            {"warmup_steps": superloss.WARMUP_STEPS},
        )
    return UnweightedLoss(
        MultiSimilarityLoss(options.ALPHA, options.BETA, options.BASE, reducer=reducer),
        MultiSimilarityMiner(options.EPSILON),
    )

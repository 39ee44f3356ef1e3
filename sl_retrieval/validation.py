"""How good the network is during a training: plain loss of tuples, mAP of labelled images."""

from dataclasses import replace

import numpy as np
import torch
from fvcore.common.config import CfgNode

from sl_retrieval import distributed
from sl_retrieval.criterion import RobustCriterion
from sl_retrieval.data import RetrievalData
from sl_retrieval.extraction import extract_descriptors
from sl_retrieval.network import ImageRetrievalNet
from sl_retrieval.revisited import evaluate_classic, relevance_from_labels
from sl_retrieval.tuple_loader import tuple_labels
from sl_retrieval.tuples import Indices, check_draws, draw_epoch, mine_epoch


class Validation:
    """Validates on a labelled set; of a noisy one, by its true labels.

    The loss is the plain one, without weights, of tuples whose queries are the same at every call
    and whose negatives are mined by the network as it is then. The mAP takes some images as
    queries, each against all others, relevant if they share the label.

    Args:
        cfg: the training's.
        data: labelled images.
        network: trained elsewhere.
        criterion: gives the plain loss in evaluation mode.
    """

    def __init__(
        self,
        cfg: CfgNode,
        data: RetrievalData,
        network: ImageRetrievalNet,
        criterion: RobustCriterion,
    ) -> None:
        if data.clean_labels is not None:
            data = replace(data, labels=data.clean_labels)
        options = cfg.VALIDATION
        drawn = (options.NUM_QUERIES, options.POOL_SIZE, cfg.SEED)
        check_draws(data, cfg.MINING.NEGATIVES, *drawn, range(1))
        self.cfg = cfg
        self.data = data
        self.network = network
        self.criterion = criterion
        self.draw = draw_epoch(data, *drawn, epoch=0)
        self.map_queries = _spread(data.labels, options.MAP_QUERIES)

    @torch.no_grad()
    def run(self) -> dict[str, float]:
        """val_loss, the mean over tuples, and val_map, in [0, 1]."""
        descriptors = extract_descriptors(
            self.network,
            self.data.images,
            size=self.cfg.INPUT.IMAGE_SIZE,
            batch_size=self.cfg.TEST.BATCH_SIZE,
            workers=self.cfg.DATALOADER.NUM_WORKERS,
            title="validation" if distributed.rank() == 0 else None,
        )
        tuples = mine_epoch(
            self.data, self.draw, self.cfg.MINING.NEGATIVES, lambda indices: descriptors[indices]
        )
        self.criterion.eval()
        columns = descriptors[tuples.indices.flatten()].T
        loss = float(self.criterion(columns, tuple_labels(tuples.indices))) / len(tuples)
        relevance = relevance_from_labels(
            self.data.labels[self.map_queries], self.data.labels, self.map_queries
        )
        result = evaluate_classic(descriptors[self.map_queries], descriptors, relevance)
        return {"val_loss": loss, "val_map": float(result["map"])}


def _spread(labels: Indices, count: int) -> Indices:
    """Up to ``count`` images that share their label, evenly over the list sorted by label."""
    order = np.argsort(labels, kind="stable")
    order = order[np.bincount(labels)[labels[order]] > 1]
    places = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(np.int64)
    return order[places]

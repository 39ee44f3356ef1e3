"""Networks of metric learning: a backbone, the mean over positions, and a linear embedding."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sl_core.checks import require
from sl_retrieval.backbones import ARCHITECTURES, OUTPUT_DIM, backbone_layers
from sl_retrieval.network import IMAGENET_MEAN, IMAGENET_STD
from sl_retrieval.weights import load_weights, weights_file

CONVNET, CONVNET_BLOCKS, CONVNET_CHANNELS = "convnet4", 4, 64
EMBEDDING_ARCHITECTURES = (CONVNET, *ARCHITECTURES)


class EmbeddingNet(nn.Module):
    """Images to embeddings of unit length.

    Args:
        features: layers from (B, 3, H, W) to (B, D, h, w).
        channels: D.
        dimensions: E, of the embedding.
        meta: what ``build_embedding_network`` needs to build the network again, mean and std.
    """

    def __init__(
        self, features: nn.Sequential, channels: int, dimensions: int, meta: dict[str, Any]
    ) -> None:
        super().__init__()
        self.features = features
        self.embedding = nn.Linear(channels, dimensions)
        self.meta = meta

    def forward(self, images: Tensor) -> Tensor:
        """Embed images (B, 3, H, W), of the mean and std in ``meta``: (B, E)."""
        pooled = self.features(images).mean((2, 3))
        return F.normalize(self.embedding(pooled), dim=1)


def build_embedding_network(
    architecture: str, dimensions: int, weights: str | Path = "none"
) -> EmbeddingNet:
    """Build a network, in training mode.

    Args:
        architecture: ``convnet4``, four times convolution 3 x 3 of 64 channels, batch norm, ReLU
            and max pooling, for images of about 28 x 28; or a backbone of torchvision.
        dimensions: of the embedding, at least 1.
        weights: of the backbone: ``"none"``, random; ``"torchvision"``, ImageNet's, which must lie
            in torch hub's folder; or a file, as in ``sl_retrieval.weights.load_weights``.

    Raises:
        ValueError: an unknown name, or weights that are not there or do not fit.
    """
    known = f"one of {', '.join(EMBEDDING_ARCHITECTURES)}"
    require(architecture in EMBEDDING_ARCHITECTURES, "architecture", architecture, known)
    require(dimensions >= 1, "dimensions", dimensions, "at least 1")
    is_convnet = architecture == CONVNET
    layers = _convnet_layers() if is_convnet else backbone_layers(architecture)
    channels = CONVNET_CHANNELS if is_convnet else OUTPUT_DIM[architecture]
    meta = {
        "architecture": architecture,
        "dimensions": dimensions,
        "mean": list(IMAGENET_MEAN),
        "std": list(IMAGENET_STD),
    }
    network = EmbeddingNet(nn.Sequential(*layers.values()), channels, dimensions, meta)
    if weights != "none":
        require(
            not (is_convnet and weights == "torchvision"),
            "weights",
            weights,
            f"'none' or a file for {CONVNET}, which torchvision does not have",
        )
        # Of another kind of network, only the features are taken.
        retrieval_meta = {"local_whitening": None, "pooling": None, "regional": None}
        load_weights(
            network,
            weights_file(weights, architecture),
            tuple(layers),
            meta | retrieval_meta | {"whitening": None},
        )
    return network


def _convnet_layers() -> dict[str, nn.Module]:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels = 3
    for number in range(CONVNET_BLOCKS):
        layers[f"block{number}"] = nn.Sequential(
            nn.Conv2d(channels, CONVNET_CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CONVNET_CHANNELS),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        channels = CONVNET_CHANNELS
    return layers

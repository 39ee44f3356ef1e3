"""The retrieval network: backbone, pooling, whitening; names and order of cirtorch."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sl_core.checks import require
from sl_retrieval.backbones import ARCHITECTURES, OUTPUT_DIM, backbone_layers, check_architecture
from sl_retrieval.pooling import L2N, MAC, RMAC, GeM, GeMmp, Rpool, SPoC, wide_linear
from sl_retrieval.weights import load_weights, weights_file

__all__ = [
    "ARCHITECTURES",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "OUTPUT_DIM",
    "POOLINGS",
    "ImageRetrievalNet",
    "build_network",
    "freeze_batch_norm",
]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
POOLINGS = ("mac", "spoc", "gem", "gemmp", "rmac")


class ImageRetrievalNet(nn.Module):
    """Images to global descriptors: features, local whitening, pooling, whitening.

    The attributes are named as the arguments, so that the state dict is cirtorch's.

    Args:
        features: layers from (B, 3, H, W) to (B, D, h, w).
        lwhiten: of each position, D to D; or None.
        pool: (B, D, h, w) to (B, D, 1, 1).
        whiten: of the pooled vector, D to D; or None.
        meta: what ``build_network`` needs to build the network again, and ``outputdim``, D. May
            also hold ``Lw``, whitenings that were learned afterwards.
    """

    def __init__(
        self,
        features: Iterable[nn.Module],
        lwhiten: nn.Linear | None,
        pool: nn.Module,
        whiten: nn.Linear | None,
        meta: dict[str, Any],
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.lwhiten = lwhiten
        self.pool = pool
        self.whiten = whiten
        self.norm = L2N()
        self.meta = meta

    def forward(self, images: Tensor) -> Tensor:
        """Describe images of one size.

        Args:
            images: (B, 3, H, W), of the mean and standard deviation in ``meta``.

        Returns:
            (D, B), at least float32; each column is a descriptor of unit length.
        """
        maps = self.features(images)
        if self.lwhiten is not None:
            maps = self.lwhiten(maps.movedim(1, -1)).movedim(-1, 1)
        vectors: Tensor = self.norm(self.pool(maps)).flatten(1)
        if self.whiten is not None:
            vectors = self.norm(wide_linear(self.whiten, vectors))
        return vectors.T

    def extra_repr(self) -> str:
        """Shown by print(module)."""
        return ", ".join(f"{key}={value}" for key, value in self.meta.items() if key != "Lw")


def build_network(
    architecture: str = "resnet50",
    pooling: str = "gem",
    *,
    local_whitening: bool = False,
    regional: bool = False,
    whitening: bool = False,
    weights: str | Path = "none",
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> ImageRetrievalNet:
    """Build a network, in training mode.

    Args:
        architecture: one of ``ARCHITECTURES``.
        pooling: one of ``POOLINGS``.
        local_whitening: with a linear layer on each position of the feature map.
        regional: pool regions, whiten each by a linear layer, and add them up.
        whitening: with a linear layer on the pooled vector.
        weights: ``"none"``, random; ``"torchvision"``, ImageNet's, which must lie in torch hub's
            folder; or a file: a state dict of torchvision's classifier or of the features alone,
            or a checkpoint (see ``sl_retrieval.weights.load_weights``).
        mean: of each colour channel, in images of range [0, 1].
        std: of each colour channel, above 0.

    Raises:
        ValueError: an unknown name, or weights that are not there or do not fit.
    """
    check_architecture(architecture)
    require(pooling in POOLINGS, "pooling", pooling, f"one of {', '.join(POOLINGS)}")
    require(_are_three_numbers(mean), "mean", mean, "three numbers")
    require(_are_three_numbers(std) and min(std) > 0, "std", std, "three numbers above 0")
    channels = OUTPUT_DIM[architecture]
    meta = {
        "architecture": architecture,
        "local_whitening": local_whitening,
        "pooling": pooling,
        "regional": regional,
        "whitening": whitening,
        "mean": list(mean),
        "std": list(std),
        "outputdim": channels,
    }
    layers = backbone_layers(architecture)
    pool = _build_pool(pooling, channels)
    network = ImageRetrievalNet(
        features=layers.values(),
        lwhiten=nn.Linear(channels, channels) if local_whitening else None,
        pool=Rpool(pool, nn.Linear(channels, channels)) if regional else pool,
        whiten=nn.Linear(channels, channels) if whitening else None,
        meta=meta,
    )
    if weights != "none":
        load_weights(network, weights_file(weights, architecture), tuple(layers), meta)
    return network


def freeze_batch_norm(module: nn.Module) -> None:
    """Put all batch norms in evaluation mode; to be called after each ``module.train()``.

    Their running mean and variance are used and stay as they are, which single images of different
    sizes need; scale and shift are still trained.
    """
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.eval()


def _are_three_numbers(values: Sequence[float]) -> bool:
    return (
        isinstance(values, list | tuple)
        and len(values) == 3
        and all(isinstance(value, int | float) for value in values)
    )


def _build_pool(pooling: str, channels: int) -> nn.Module:
    if pooling == "gemmp":
        return GeMmp(channels)
    pools: dict[str, type[nn.Module]] = {"mac": MAC, "spoc": SPoC, "gem": GeM, "rmac": RMAC}
    return pools[pooling]()

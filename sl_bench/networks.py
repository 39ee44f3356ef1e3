"""The networks of the papers: small ones for digits and CIFAR, and torchvision's ResNets."""

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import resnet18, resnet50

WIDE_DEPTH, WIDE_FACTOR = 28, 10


class SmallCnn(nn.Module):
    """Two 3 x 3 convolutions with pooling, then two linear layers; no batch norm.

    Args:
        shape: (channels, height, width) of the images; at least 4 pixels high and wide.
        outputs: numbers per image.
        dropout: rate before the last layer.
    """

    def __init__(self, shape: tuple[int, int, int], outputs: int, dropout: float) -> None:
        super().__init__()
        channels, height, width = shape
        self.features = nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 128),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.fc = nn.Linear(128, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, *shape) to (B, outputs)."""
        scores: Tensor = self.fc(self.features(images))
        return scores


class CifarBlock(nn.Module):
    """Two convolutions and a shortcut without parameters, which pads new channels with zeros."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride, self.new_channels = stride, width - inputs

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) to (B, width, H / stride, W / stride)."""
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        before = self.new_channels // 2
        shortcut = F.pad(shortcut, (0, 0, 0, 0, before, self.new_channels - before))
        return F.relu(out + shortcut)


class CifarResNet(nn.Module):
    """He et al.'s ResNet for CIFAR: 6 n + 2 layers, widths 16, 32, 64.

    Args:
        depth: 20, 44, 56: 0.27, 0.66, 0.85 million parameters for CIFAR-10.
        channels: of the images.
        outputs: numbers per image.
        dropout: rate before the last layer.
    """

    def __init__(self, depth: int, channels: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        blocks: list[nn.Module] = []
        inputs = 16
        for width, stride in ((16, 1), (32, 2), (64, 2)):
            for number in range((depth - 2) // 6):
                blocks.append(CifarBlock(inputs, width, stride if number == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(64, outputs)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, channels, H, W) to (B, outputs)."""
        x = self.blocks(F.relu(self.bn1(self.conv1(images))))
        scores: Tensor = self.fc(self.dropout(x.mean((2, 3))))
        return scores


class WideBlock(nn.Module):
    """Batch norm and activation before each of two convolutions, dropout between them."""

    def __init__(self, inputs: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(inputs, width, 1, stride, bias=False) if inputs != width else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) to (B, width, H / stride, W / stride)."""
        active = F.relu(self.bn1(x))
        out = self.conv1(active)
        out = self.conv2(self.dropout(F.relu(self.bn2(out))))
        shortcut: Tensor = x if self.shortcut is None else self.shortcut(active)
        total: Tensor = out + shortcut
        return total


class WideResNet(nn.Module):
    """Zagoruyko and Komodakis' WRN-28-10: 36.5 million parameters.

    Args:
        channels: of the images.
        outputs: numbers per image.
        dropout: rate between the convolutions of each block.
    """

    def __init__(self, channels: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        inputs = 16
        for base, stride in ((16, 1), (32, 2), (64, 2)):
            for number in range((WIDE_DEPTH - 4) // 6):
                width = base * WIDE_FACTOR
                blocks.append(WideBlock(inputs, width, stride if number == 0 else 1, dropout))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(inputs)
        self.fc = nn.Linear(inputs, outputs)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, channels, H, W) to (B, outputs)."""
        x = F.relu(self.bn(self.blocks(self.conv1(images))))
        scores: Tensor = self.fc(x.mean((2, 3)))
        return scores


def build_network(
    name: str, shape: tuple[int, int, int], outputs: int, dropout: float = 0.0
) -> nn.Module:
    """Build a network by name, with random weights.

    Args:
        name: small_cnn, resnet20, resnet44, resnet56, wrn28_10, resnet18 or resnet50.
        shape: (channels, height, width) of the images.
        outputs: number of classes; 1 for regression.
        dropout: rate; see each network.

    Raises:
        ValueError: the images do not fit the network.
    """
    channels = shape[0]
    if name == "small_cnn":
        if min(shape[1:]) < 4:
            raise ValueError(f"images are {shape[1]} x {shape[2]}, expected at least 4 x 4")
        return SmallCnn(shape, outputs, dropout)
    if name == "wrn28_10":
        return WideResNet(channels, outputs, dropout)
    if name in ("resnet18", "resnet50"):
        return _torchvision_network(name, channels, outputs, dropout)
    return CifarResNet(int(name.removeprefix("resnet")), channels, outputs, dropout)


def has_batch_norm(network: nn.Module) -> bool:
    """Whether the result of an image depends on the others of its batch in training."""
    return any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def _torchvision_network(name: str, channels: int, outputs: int, dropout: float) -> nn.Module:
    if channels != 3:
        raise ValueError(f"images have {channels} channels, expected 3 for MODEL.NAME {name}")
    network: nn.Module = {"resnet18": resnet18, "resnet50": resnet50}[name](num_classes=outputs)
    if dropout:
        # Called with the input of the last layer, so that names and weights stay torchvision's.
        layer = nn.Dropout(dropout)
        network.add_module("dropout", layer)
        network.get_submodule("fc").register_forward_pre_hook(lambda _, inputs: layer(*inputs))
    return network


def _initialise(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

"""The convolutional part of torchvision's classifiers, cut where cirtorch cuts it."""

import torchvision
from torch import nn

from sl_core.checks import require

OUTPUT_DIM = {
    "alexnet": 256,
    "vgg11": 512,
    "vgg13": 512,
    "vgg16": 512,
    "vgg19": 512,
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
    "resnet101": 2048,
    "resnet152": 2048,
    "densenet121": 1024,
    "densenet169": 1664,
    "densenet201": 1920,
    "densenet161": 2208,
    "squeezenet1_0": 512,
    "squeezenet1_1": 512,
}
ARCHITECTURES = tuple(OUTPUT_DIM)


def check_architecture(architecture: str) -> None:
    """Raise ValueError, listing the known ones, for an architecture that is not supported."""
    expected = f"one of {', '.join(ARCHITECTURES)}"
    require(architecture in ARCHITECTURES, "architecture", architecture, expected)


def backbone_layers(architecture: str) -> dict[str, nn.Module]:
    """The layers up to the last activation, randomly initialised, by their torchvision name.

    Names are as in the classifier's state dict (``layer4``, ``features.28``). All outputs are at
    least 0. Their number of channels is ``OUTPUT_DIM[architecture]``.
    """
    check_architecture(architecture)
    classifier = torchvision.models.get_model(architecture, weights=None)
    if architecture.startswith("resnet"):
        layers = dict(classifier.named_children())
        del layers["avgpool"], layers["fc"]
        return layers
    layers = {f"features.{name}": layer for name, layer in classifier.features.named_children()}
    if architecture.startswith("densenet"):
        layers["features.relu"] = nn.ReLU(inplace=True)
    elif architecture.startswith(("alexnet", "vgg")):
        layers.popitem()  # the last max pooling would throw positions away
    return layers

"""Weights to start a training from, in the files they are published in."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn

from sl_retrieval.state_files import fit_state, read_state_file


def weights_file(weights: str | Path, architecture: str) -> Path:
    """Where weights lie.

    Args:
        weights: ``"torchvision"``, the ImageNet weights (version 1, which cirtorch takes too) in
            torch hub's folder, where they are never downloaded to; or a file.
        architecture: a known one.

    Raises:
        ValueError: there is no such file.
    """
    if weights != "torchvision":
        file = Path(weights)
        if not file.is_file():
            raise ValueError(
                f"weights is {str(weights)!r}, expected 'none', 'torchvision' or an existing file"
            )
        return file
    url: str = torchvision.models.get_model_weights(architecture)["IMAGENET1K_V1"].url
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    file = folder / url.rpartition("/")[2]
    if not file.is_file():
        raise ValueError(
            f"weights is 'torchvision', but {file.name} is not in {folder}; nothing is downloaded "
            f"here: get it from {url} and put it there, or give the path of a file"
        )
    return file


def load_weights(
    network: nn.Module, file: Path, layer_names: Sequence[str], meta: Mapping[str, Any]
) -> None:
    """Start a new network from what a file has for it.

    The file holds one of: a whole classifier's state dict, by torchvision's names; the state dict
    of the features alone (``0.weight``, ``4.0.conv1.weight``, ...), as cirtorch publishes them; a
    checkpoint. All give the features. A checkpoint also gives its local whitening, its pooling and
    its whitening, each if the new network has the same. Everything else stays as it is.

    Args:
        network: with the state dict names of ``ImageRetrievalNet``.
        file: to be read.
        layer_names: torchvision's names of the features, in their order.
        meta: the new network's.

    Raises:
        ValueError: the file cannot be read, is a checkpoint of another architecture, or does not
            fit.
    """
    content = read_state_file(file)
    if isinstance(content.get("state_dict"), dict) and isinstance(content.get("meta"), dict):
        parts = _shared_parts(content["meta"], meta, file)
        state = {key: value for key, value in content["state_dict"].items() if _part(key) in parts}
    else:
        parts = {"features"}
        state = _features_state(content, layer_names)
    own = {key: value for key, value in network.state_dict().items() if _part(key) not in parts}
    fit_state(network, own | state, file, meta["architecture"])


def _part(key: str) -> str:
    return key.partition(".")[0]


def _shared_parts(old: Mapping[str, Any], new: Mapping[str, Any], file: Path) -> set[str]:
    """The parts of a network that a checkpoint's and a new one have in common."""
    if old.get("architecture") != new["architecture"]:
        raise ValueError(
            f"{file} has architecture {old.get('architecture')!r}, expected {new['architecture']!r}"
        )
    options_of_parts: dict[str, tuple[str, ...]] = {
        "features": (),
        "lwhiten": ("local_whitening",),
        "pool": ("pooling", "regional"),
        "whiten": ("whitening",),
    }
    return {
        part
        for part, options in options_of_parts.items()
        if all(old.get(option, False) == new[option] for option in options)
    }


def _features_state(content: Mapping[str, Any], layer_names: Sequence[str]) -> dict[str, Any]:
    """The features' state, by the network's names, from that of a classifier or of them alone."""
    if all(re.match(r"\d+\.", key) for key in content):
        return {f"features.{key}": value for key, value in content.items()}
    # torchvision's published densenets still have the names of a version long ago.
    modern = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])", r"\1\2", key): value
        for key, value in content.items()
    }
    return {
        f"features.{index}{key.removeprefix(layer)}": value
        for index, layer in enumerate(layer_names)
        for key, value in modern.items()
        if key.startswith(f"{layer}.")
    }

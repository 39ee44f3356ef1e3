"""Checkpoints in cirtorch's format, which both sides can load."""

from pathlib import Path
from typing import Any

import torch

from sl_retrieval.network import ImageRetrievalNet, build_network
from sl_retrieval.state_files import fit_state, read_state_file, write_state_file

_NEEDED_META = ("architecture", "pooling", "mean", "std")


def save_checkpoint(
    file: Path,
    network: ImageRetrievalNet,
    *,
    epoch: int,
    min_loss: float,
    optimizer: dict[str, Any],
    **extra: Any,
) -> None:
    """Write {epoch, meta, state_dict, min_loss, optimizer, **extra} atomically.

    The new file is read once before it takes the old one's place, so that a kill or an error at any
    moment leaves a file that can be loaded. cirtorch ignores what is in extra. If meta has numpy
    arrays (``Lw``), a plain ``torch.load`` of today refuses the file and ``load_checkpoint`` is
    needed; any other file has tensors, numbers, text and containers only.

    Args:
        file: its folder must exist.
        network: its meta and state are written.
        epoch: number of epochs done.
        min_loss: lowest validation loss so far.
        optimizer: its state dict.
        extra: more entries, of the kinds above.

    Raises:
        ValueError: extra has one of the names above, or something that could not be loaded again.
    """
    content = {
        "epoch": int(epoch),
        "meta": network.meta,
        "state_dict": network.state_dict(),
        "min_loss": float(min_loss),
        "optimizer": optimizer,
    }
    taken = sorted(content.keys() & extra.keys())
    if taken:
        raise ValueError(f"extra has {', '.join(taken)}, expected names that are not taken")
    write_state_file(file, content | extra)


def load_checkpoint(file: Path, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """Read a checkpoint of ours or of cirtorch without executing anything in it.

    Returns:
        At least meta and state_dict; a checkpoint that a training wrote also has epoch, min_loss
        and optimizer.

    Raises:
        ValueError: the file is missing, damaged, holds classes, or is no checkpoint.
    """
    content = read_state_file(file, map_location)
    for key in ("meta", "state_dict"):
        if not isinstance(content.get(key), dict):
            found = ", ".join(map(str, list(content)[:5])) or "nothing"
            raise ValueError(f"{file} is no checkpoint: found {found}, expected a dict {key!r}")
    return content


def load_network(file: Path) -> ImageRetrievalNet:
    """Rebuild the network of a checkpoint, on the CPU and in evaluation mode.

    Of meta, architecture, pooling, mean and std are needed; without local_whitening, regional and
    whitening the network has none. ``Lw`` is kept.

    Raises:
        ValueError: as ``load_checkpoint``; or meta is incomplete or unknown, or the state does not
            fit it.
    """
    checkpoint = load_checkpoint(file)
    meta = checkpoint["meta"]
    for key in _NEEDED_META:
        if key not in meta:
            raise ValueError(f"{file} has no {key!r} in meta, found {', '.join(map(str, meta))}")
    try:
        network = build_network(
            meta["architecture"],
            meta["pooling"],
            local_whitening=bool(meta.get("local_whitening", False)),
            regional=bool(meta.get("regional", False)),
            whitening=bool(meta.get("whitening", False)),
            mean=meta["mean"],
            std=meta["std"],
        )
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if "Lw" in meta:
        network.meta["Lw"] = meta["Lw"]
    name = f"{meta['architecture']} with pooling {meta['pooling']}"
    fit_state(network, checkpoint["state_dict"], file, name)
    return network.eval()

"""Evaluate a retrieval network: mAP and mP@k on Revisited Oxford / Paris or on your own data.

    python tools/eval_retrieval.py --network model_best.pth.tar --datasets roxford5k rparis6k \\
        --data-root datasets/test --scales 1 0.7071 0.5
    python tools/eval_retrieval.py --network ... --datasets roxford5k \\
        --learn-whitening retrieval-SfM-120k_whiten --distractors r1m_0.npy r1m_1.npy
    python tools/eval_retrieval.py --network ... --datasets procedural_test

The network is a checkpoint of this trainer or of cirtorch. A data set is a name of the catalog,
each of whose images is a query against all others, or a folder below --data-root:

    <data-root>/roxford5k/gnd_roxford5k.pkl   (or .json; imlist, qimlist, gnd with easy, hard, junk,
    <data-root>/roxford5k/jpg/*.jpg            or ok, junk; and bbx to crop the query)

--describe writes the descriptors of an image folder as .npy, which is what --distractors takes.
"""

import argparse
import functools
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from sl_core.json_files import write_json
from sl_retrieval import catalog
from sl_retrieval.builders import EXTENSIONS, from_folders, register_builtin
from sl_retrieval.checkpoint import load_network
from sl_retrieval.evaluation import (
    DescribedSet,
    Extraction,
    check_test_set,
    describe_set,
    evaluate_set,
    memory_mapped,
)
from sl_retrieval.network import ImageRetrievalNet
from sl_retrieval.result_pictures import draw_results, spread_queries
from sl_retrieval.tuples import matching_pairs
from sl_retrieval.whitening import learn_pca_whitening, learn_whitening

Whitening = tuple[NDArray[np.float64], NDArray[np.float64]]
DESCRIBED_AT_ONCE = 4096  # images, so that a million descriptors need no memory
METRICS = ("map", "mp@1", "mp@5", "mp@10")


def main(
    network: Path,
    datasets: Sequence[str] = (),
    data_root: Path = Path("datasets/test"),
    folders: Sequence[tuple[str, Path]] = (),
    image_size: int = 1024,
    scales: Sequence[float] = (1.0,),
    stored_whitening: str | None = None,
    learn_whitening_on: str | None = None,
    pca_whitening_on: str | None = None,
    dimensions: int | None = None,
    distractors: Sequence[Path] = (),
    describe: tuple[Path, Path] | None = None,
    batch_size: int = 16,
    workers: int = 4,
    device: str = "",
    output: Path | None = None,
    per_query: bool = False,
    pictures: Path | None = None,
) -> dict[str, Any]:
    """Evaluate on every data set, print tables and write ``output``.

    Returns:
        Data set to protocol to metrics.
    """
    register_builtin()
    for name, folder in folders:
        catalog.register(name, functools.partial(from_folders, name, folder))
    if not datasets and describe is None:
        raise ValueError("nothing to do, expected --datasets or --describe")
    for name in datasets:
        check_test_set(name, data_root)
    for file in (output, describe[1] if describe else None):
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    for _ in memory_mapped(distractors):
        pass  # each file is opened, so that a wrong one shows before hours of extraction
    net = load_network(network)
    net.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    extraction = Extraction(image_size, scales, batch_size, workers)
    chosen = (stored_whitening, learn_whitening_on, pca_whitening_on)
    number = sum(choice is not None for choice in chosen)
    if number > 1:
        raise ValueError("more than one whitening was asked for, expected at most one")
    if number == 0 and dimensions is not None:
        raise ValueError("--dimensions needs a whitening, whose first rows it takes")
    whitening = _whitening(net, network, extraction, *chosen)
    extraction = replace(extraction, whitening=whitening, dimensions=dimensions)
    if describe is not None:
        _describe_folder(net, extraction, *describe)
    results: dict[str, Any] = {}
    for name in datasets:
        described = describe_set(net, name, data_root, extraction)
        results[name] = evaluate_set(described, distractors)
        print(f"\n{name}\n{_table(results[name])}")
        if per_query:
            print(f"\n{_query_table(results[name])}")
        if pictures is not None:
            _draw(described, results[name], pictures / f"{name}.png")
        if output is not None:
            write_json(output, results)
    return results


def _whitening(
    net: ImageRetrievalNet,
    file: Path,
    extraction: Extraction,
    stored: str | None,
    learn_on: str | None,
    pca_on: str | None,
) -> Whitening | None:
    """The whitening that was asked for: of the checkpoint, from pairs, or from PCA."""
    if stored is not None:
        known = net.meta.get("Lw", {})
        kind = "ms" if len(extraction.scales) > 1 else "ss"
        if stored not in known or kind not in known[stored]:
            listed = ", ".join(f"{name} ({'/'.join(known[name])})" for name in known) or "none"
            raise ValueError(f"{file} has the whitenings {listed}, expected {stored} ({kind})")
        entry = known[stored][kind]
        return np.asarray(entry["m"]).reshape(-1), np.asarray(entry["P"])
    if learn_on is not None:
        data = catalog.get(learn_on)
        queries, positives = matching_pairs(data)
        described = extraction.describe(net, data.images, f"whitening on {learn_on}")
        return learn_whitening(described, queries, positives)
    if pca_on is not None:
        data = catalog.get(pca_on)
        return learn_pca_whitening(extraction.describe(net, data.images, f"PCA on {pca_on}"))
    return None


def _describe_folder(
    net: ImageRetrievalNet, extraction: Extraction, folder: Path, file: Path
) -> None:
    images = sorted(str(p) for p in folder.rglob("*") if p.suffix.lower() in EXTENSIONS)
    if not images:
        raise ValueError(f"{folder} has no {', '.join(EXTENSIONS)}, expected images to describe")
    unfinished = file.with_name(f"{file.name}.tmp.npy")
    mapped = None
    for start in tqdm(range(0, len(images), DESCRIBED_AT_ONCE), desc=str(folder), unit="part"):
        part = extraction.describe(net, images[start : start + DESCRIBED_AT_ONCE], str(folder))
        if mapped is None:
            shape = (len(images), part.shape[1])
            mapped = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
        mapped[start : start + len(part)] = part
    assert mapped is not None
    mapped.flush()
    unfinished.replace(file)
    print(f"{file}: descriptors of {len(images)} images")


def _table(protocols: dict[str, Any]) -> str:
    lines = [f"| | {' | '.join(METRICS)} |", "|---" * (len(METRICS) + 1) + "|"]
    for protocol, metrics in protocols.items():
        cells = " | ".join(f"{100 * metrics[key]:.2f}" for key in METRICS)
        lines.append(f"| {protocol} | {cells} |")
    return "\n".join(lines)


def _draw(described: DescribedSet, protocols: dict[str, Any], file: Path) -> None:
    """Eight queries, from the lowest AP to the highest of the last protocol, the hardest one."""
    *_, metrics = protocols.values()
    queries = spread_queries(metrics["per_query"]["ap"], 8)
    draw_results(described, queries).save(file)
    print(f"\n{file}: queries and their nearest images")


def _query_table(protocols: dict[str, Any]) -> str:
    """AP of each query and protocol, the queries with the lowest mean first."""
    names = next(iter(protocols.values()))["per_query"]["query"]
    values = np.array([metrics["per_query"]["ap"] for metrics in protocols.values()]).T
    filled = np.where(np.isnan(values), np.inf, values).mean(axis=1)
    lines = [f"| AP of query | {' | '.join(protocols)} |", "|---" * (len(protocols) + 1) + "|"]
    for row in np.argsort(filled, kind="stable"):
        cells = ("" if np.isnan(value) else f"{100 * value:.2f}" for value in values[row])
        lines.append(f"| {names[row]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--network", type=Path, required=True, help="checkpoint")
    add("--datasets", nargs="+", default=[], help="what to evaluate on")
    add("--data-root", type=Path, default=Path("datasets/test"))
    add(
        "--folders",
        nargs="+",
        type=_named_folder,
        default=[],
        metavar="NAME=FOLDER",
        help="data sets to register: a sub-folder for each landmark",
    )
    add("--image-size", type=int, default=1024, help="longest side (1024)")
    add("--scales", type=float, nargs="+", default=[1.0], help="such as 1 0.7071 0.5")
    add("--stored-whitening", metavar="DATASET", help="the checkpoint's own, learned on DATASET")
    add("--learn-whitening", dest="learn_whitening_on", metavar="DATASET", help="from its pairs")
    add("--pca-whitening", dest="pca_whitening_on", metavar="DATASET", help="by PCA")
    add("--dimensions", type=int, help="of whitened descriptors (all)")
    add("--distractors", type=Path, nargs="+", default=[], help=".npy files of descriptors")
    add(
        "--describe",
        type=Path,
        nargs=2,
        metavar=("FOLDER", "FILE"),
        help="write the descriptors of the images below FOLDER to FILE.npy",
    )
    add("--batch-size", type=int, default=16)
    add("--workers", type=int, default=4, help="processes that load images (4)")
    add("--device", default="", help="a GPU if there is one")
    add("--per-query", action="store_true", help="print the AP of every query, the worst first")
    add(
        "--pictures",
        type=Path,
        metavar="FOLDER",
        help="write <data set>.png: eight queries, the worst first, with their nearest images, "
        "right ones framed green, wrong ones red (distractors are not shown)",
    )
    add("--output", type=Path, help="JSON file, with the values of every query")
    return parser.parse_args(arguments)


def _named_folder(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"{text!r}, expected NAME=FOLDER")
    return name, Path(folder)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        main(**vars(_parse()))
    except ValueError as error:
        sys.exit(f"error: {error}")

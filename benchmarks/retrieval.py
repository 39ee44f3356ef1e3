"""Speed and memory of retrieval: evaluation, mining and extraction, as ratios within one run.

    python benchmarks/retrieval.py --output output/benchmarks/retrieval.json

mAP of the three revisited protocols on a synthetic test set of ROxford's size (4993 images, 70
queries) with a million distractors that lie in a memory-mapped file: evaluate_revisited against
three ways to sort everything. "as cirtorch" is np.argsort(-scores, axis=0), which leaves ties
undefined; "rows" sorts one contiguous row per query; "stable" defines ties as evaluate_revisited
does. "scores" is reading and multiplying: in float64 by evaluate_revisited, in float32 by the
others; seconds are those of the processor. "AP" is the largest difference of the average precision
of a query. Every repetition runs in a fresh process, all rows in turns, and the fastest counts;
the memory is the peak of the process above what its imports take, pages of the mapped file
included.

Negatives of 2000 queries from a pool of 20,000: mine_negatives against a full sort of all scores
and the walk down each list, and against the sort alone. One thread.

Descriptors of JPEG files by a ResNet-18, images per second: loaded by workers and computed in
batches, against one image after the other. All cores.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from sl_core.json_files import write_json
from sl_retrieval.extraction import extract_descriptors
from sl_retrieval.ground_truth import Relevance
from sl_retrieval.mining import mine_negatives
from sl_retrieval.network import build_network
from sl_retrieval.ranking import CHUNK_SIZE
from sl_retrieval.revisited import evaluate_revisited

Matrix = NDArray[np.float32]
Result = TypeVar("Result")
DATABASE, QUERIES = 4993, 70
NEGATIVES = 5
EXTRACTED = 300
CHUNK = 65536  # rows of a distractor chunk, as a user might store them


class TestSet(NamedTuple):
    """Descriptors and ground truth like ROxford's; distractors are in a file of their own."""

    queries: Matrix
    database: Matrix
    relevance: Sequence[Relevance]
    distractors: Path


class Measured(NamedTuple):
    """Seconds for scores, for everything after them, peak memory, and AP per protocol, query."""

    score_seconds: float
    rank_seconds: float
    mebibytes: float
    ap: NDArray[np.float64]


def unit_rows(generator: np.random.Generator, count: int, dimensions: int) -> Matrix:
    """Random descriptors of length 1."""
    rows = generator.standard_normal((count, dimensions), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def make_test_set(folder: Path, count: int, dimensions: int) -> TestSet:
    """Write distractors chunk by chunk; draw positives near their queries, hard ones less so."""
    generator = np.random.default_rng(0)
    file = folder / "distractors.npy"
    shape = (count, dimensions)
    mapped = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
    for start in tqdm(range(0, count, CHUNK), desc="writing distractors", unit="chunk"):
        rows = mapped[start : start + CHUNK]
        rows[:] = unit_rows(generator, len(rows), dimensions)
    mapped.flush()
    queries = unit_rows(generator, QUERIES, dimensions)
    database = unit_rows(generator, DATABASE, dimensions)
    relevance = []
    for query in queries:
        sizes = generator.poisson((43, 36, 19))
        images = generator.choice(DATABASE, int(sizes.sum()), replace=False)
        easy, hard, junk = np.split(images, np.cumsum(sizes)[:-1])
        for indices, nearness in ((easy, 0.6), (hard, 0.3), (junk, 0.2)):
            database[indices] += nearness * query
        relevance.append({"easy": easy, "hard": hard, "junk": junk})
    database /= np.linalg.norm(database, axis=1, keepdims=True)
    return TestSet(queries, database, relevance, file)


def chunks(test_set: TestSet, description: str) -> Iterator[Matrix]:
    """The distractors, a chunk at a time, with a progress bar."""
    mapped = np.load(test_set.distractors, mmap_mode="r")
    for start in tqdm(range(0, len(mapped), CHUNK), desc=description, unit="chunk"):
        yield mapped[start : start + CHUNK]


def peak_mebibytes() -> float:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def streamed(test_set: TestSet) -> Measured:
    """evaluate_revisited, and once more only its products."""
    baseline, start = peak_mebibytes(), time.process_time()
    found = evaluate_revisited(
        *test_set[:3], distractors=chunks(test_set, "streamed"), chunk_size=CHUNK_SIZE
    )
    seconds, memory = time.process_time() - start, peak_mebibytes() - baseline
    start = time.process_time()
    queries = test_set.queries.astype(np.float64)
    for chunk in (test_set.database, *chunks(test_set, "products only")):
        for first in range(0, len(chunk), CHUNK_SIZE):
            block = chunk[first : first + CHUNK_SIZE].astype(np.float64)
            (-queries @ block.T).astype(np.float32)
    products = time.process_time() - start
    ap = np.array([metrics["per_query"]["ap"] for metrics in found.values()])
    return Measured(products, seconds - products, memory, ap)


def sorted_fully(test_set: TestSet, order: Callable[[Matrix], NDArray[np.int64]]) -> Measured:
    """Scores of everything, one argsort per query, and the same metrics from the ranks."""
    baseline, start = peak_mebibytes(), time.process_time()
    everything = np.concatenate([test_set.database, *chunks(test_set, order.__name__)])
    scores = test_set.queries @ everything.T
    products = time.process_time() - start
    start = time.process_time()
    ranking = order(scores)
    ap = np.full((3, QUERIES), np.nan)
    for query, entry in enumerate(test_set.relevance):
        for protocol, (positive, ignored) in enumerate(
            (
                (entry["easy"], np.union1d(entry["junk"], entry["hard"])),
                (np.union1d(entry["easy"], entry["hard"]), entry["junk"]),
                (entry["hard"], np.union1d(entry["junk"], entry["easy"])),
            )
        ):
            found = np.flatnonzero(np.isin(ranking[query], positive))
            skipped = np.flatnonzero(np.isin(ranking[query], ignored))
            ranks = found - np.searchsorted(skipped, found)
            count = np.arange(len(ranks))
            before = np.where(ranks == 0, 1.0, count / np.maximum(ranks, 1))
            ap[protocol, query] = (before + (count + 1) / (ranks + 1)).mean() / 2
    return Measured(products, time.process_time() - start, peak_mebibytes() - baseline, ap)


def as_cirtorch(scores: Matrix) -> NDArray[np.int64]:
    """(Q, N) orders, from an argsort over the columns of an N x Q matrix."""
    return np.argsort(-np.ascontiguousarray(scores.T), axis=0).T


def rows(scores: Matrix) -> NDArray[np.int64]:
    """(Q, N) orders, from an argsort of each contiguous row."""
    return np.argsort(-scores, axis=1)


def stable_rows(scores: Matrix) -> NDArray[np.int64]:
    """(Q, N) orders, from a stable argsort of each contiguous row."""
    return np.argsort(-scores, axis=1, kind="stable")


def measure_evaluation(
    count: int, dimensions: int, repetitions: int
) -> dict[str, dict[str, float]]:
    """Print and return the comparison."""
    with tempfile.TemporaryDirectory() as folder:
        # A process begins with the peak memory of the one that started it: keep this one small.
        test_set = in_fresh_process(make_test_set, Path(folder), count, dimensions)
        measured: dict[str, Measured] = {}
        for _ in range(repetitions):
            runs = {"evaluate_revisited": in_fresh_process(streamed, test_set)}
            for order in (as_cirtorch, rows, stable_rows):
                name = f"full argsort, {order.__name__.replace('_', ' ')}"
                runs[name] = in_fresh_process(sorted_fully, test_set, order)
            for name, run in runs.items():
                measured[name] = min(run, measured.get(name, run), key=lambda m: sum(m[:2]))
    ours = measured["evaluate_revisited"]
    print(f"\nmAP with {count:,} distractors, {QUERIES} queries, D = {dimensions}, one thread\n")
    print("| | scores, s | ranks and mAP, s | all, x ours | without scores, x ours | MiB | AP |")
    print("|---|---|---|---|---|---|---|")
    result = {}
    for name, row in measured.items():
        result[name] = figures = {
            "score_seconds": row.score_seconds,
            "rank_seconds": row.rank_seconds,
            "ratio": sum(row[:2]) / sum(ours[:2]),
            "ratio_without_scores": row.rank_seconds / ours.rank_seconds,
            "mebibytes": row.mebibytes,
            "largest_ap_difference": float(np.nanmax(np.abs(row.ap - ours.ap))),
        }
        formats = (".2f", ".2f", ".1f", ".1f", ".0f", ".0e")
        cells = (format(v, f) for v, f in zip(figures.values(), formats, strict=True))
        print(f"| {name} | {' | '.join(cells)} |")
    return result


def measure_mining(
    queries: int, pool: int, dimensions: int, repetitions: int
) -> dict[str, dict[str, float]]:
    """Print and return the comparison."""
    measured: dict[str, float] = {}
    for _ in range(repetitions):
        for name, seconds in in_fresh_process(mining_seconds, queries, pool, dimensions).items():
            measured[name] = min(seconds, measured.get(name, seconds))
    ours = measured["mine_negatives"]
    print(f"\nMining: {queries} queries, pool of {pool}, D = {dimensions}, one thread\n")
    print("| | seconds | x ours |")
    print("|---|---|---|")
    for name, seconds in measured.items():
        print(f"| {name} | {seconds:.2f} | {seconds / ours:.1f} |")
    return {name: {"seconds": s, "ratio": s / ours} for name, s in measured.items()}


def mining_seconds(queries: int, pool: int, dimensions: int) -> dict[str, float]:
    """Processor time of each way, scores included; checks that the negatives agree."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    q, p = (torch.from_numpy(unit_rows(generator, n, dimensions)) for n in (queries, pool))
    # Clusters of about 30 images, which are near to one another.
    own, labels = (generator.integers(0, pool // 30, n) for n in (queries, pool))
    centres = torch.from_numpy(unit_rows(generator, pool // 30, dimensions))
    q, p = (
        torch.nn.functional.normalize(x + centres[y], dim=1) for x, y in ((q, own), (p, labels))
    )
    start = time.process_time()
    found = mine_negatives(q, own, p, labels, NEGATIVES)
    mined = time.process_time() - start
    start = time.process_time()
    order = (q @ p.T).argsort(dim=1, descending=True, stable=True)
    sorted_only = time.process_time() - start
    walked = np.array(
        [walk(row, labels, label) for row, label in zip(order.numpy(), own, strict=True)]
    )
    both = time.process_time() - start
    if (walked != found).any():
        raise AssertionError("mine_negatives and the full sort disagree")
    return {"mine_negatives": mined, "full sort": sorted_only, "full sort and walk": both}


def walk(order: NDArray[np.int64], labels: NDArray[np.int64], own: int) -> list[int]:
    """The first images of other clusters than the query's, one of each."""
    taken: list[int] = []
    clusters = {own}
    for position in order:
        if labels[position] not in clusters:
            taken.append(int(position))
            clusters.add(int(labels[position]))
            if len(taken) == NEGATIVES:
                break
    return taken


def measure_extraction(images: int, repetitions: int) -> dict[str, dict[str, float]]:
    """Print and return the comparison."""
    measured: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = in_fresh_process(write_photographs, Path(folder), images)
        for _ in range(repetitions):
            for name, (batch, workers) in {
                "batches of 8, 2 workers": (8, 2),
                "one by one": (1, 0),
            }.items():
                seconds = in_fresh_process(extraction_seconds, files, batch, workers)
                measured[name] = min(seconds, measured.get(name, seconds))
    slowest = measured["one by one"]
    print(f"\nDescriptors of {images} JPEGs of 1024 x 768 at 224 px, ResNet-18, all cores\n")
    print("| | images / s | x one by one |")
    print("|---|---|---|")
    for name, seconds in measured.items():
        print(f"| {name} | {images / seconds:.1f} | {slowest / seconds:.2f} |")
    return {
        name: {"images_per_second": images / s, "ratio": slowest / s}
        for name, s in measured.items()
    }


def write_photographs(folder: Path, count: int) -> list[str]:
    """JPEGs with smooth content, as slow to decode as photographs."""
    generator = np.random.default_rng(0)
    files = []
    for number in range(count):
        coarse = generator.integers(0, 255, (48, 64, 3)).astype(np.uint8)
        files.append(str(folder / f"{number}.jpg"))
        Image.fromarray(coarse).resize((1024, 768), Image.Resampling.BICUBIC).save(files[-1])
    return files


def extraction_seconds(files: list[str], batch_size: int, workers: int) -> float:
    """Wall-clock time, since several processes work."""
    torch.manual_seed(0)
    network = build_network("resnet18")
    extract_descriptors(network, files[:2], size=224)
    start = time.perf_counter()
    extract_descriptors(network, files, size=224, batch_size=batch_size, workers=workers)
    return time.perf_counter() - start


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Run alone, so that the peak memory is that of the function."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main(
    output: Path, distractors: int = 1_000_000, dimensions: int = 128, repetitions: int = 3
) -> None:
    """Measure, print tables, and write JSON."""
    extraction = measure_extraction(EXTRACTED, repetitions)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    result = {
        "extraction": extraction,
        "mining": measure_mining(2000, 20_000, 512, repetitions),
        "evaluation": measure_evaluation(distractors, dimensions, repetitions),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    write_json(output, result)


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("output/benchmarks/retrieval.json"))
    parser.add_argument("--distractors", type=int, default=1_000_000, help="how many")
    parser.add_argument("--dimensions", type=int, default=128, help="of a descriptor")
    parser.add_argument("--repetitions", type=int, default=3, help="of which the fastest counts")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

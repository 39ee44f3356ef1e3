"""Train a small classifier on digits of which 40 % carry a wrong label, with and without SuperLoss.

Baseline and SuperLoss run through the same code with the same seeds, data, noise and batches; only
the loss differs. Writes results.json and accuracy.png to the output folder and prints a table.

    python tools/demo_classification.py --rate 0.4 --seeds 0 1 2
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from tqdm import tqdm

from sl_core import build_loss, noise
from sl_core.json_files import write_json

matplotlib.use("Agg")
import matplotlib.pyplot as plt

METHODS: dict[str, dict[str, Any]] = {
    "baseline": {"name": "none"},
    "SuperLoss": {"name": "superloss", "tau": "expavg", "lam": 0.1},
}
COLOURS = {"baseline": "#7f7f7f", "SuperLoss": "#0b6fb8"}
NUM_CLASSES = 10
NUM_TRAIN = 1200
BATCH_SIZE = 60


@dataclass
class Digits:
    """Images (N, 1, 8, 8) in [0, 1], with true labels and, for training, noisy ones."""

    train: Tensor
    noisy_labels: Tensor
    true_labels: Tensor
    test: Tensor
    test_labels: Tensor


@dataclass
class Run:
    """What one training gives.

    Attributes:
        method: key of METHODS.
        seed: of the noise, the network and the batches.
        accuracy: on the test data after each epoch, in percent.
        confidence: of each training sample, mean over all epochs.
        wrong: whether each training sample's label is wrong.
    """

    method: str
    seed: int
    accuracy: list[float]
    confidence: list[float]
    wrong: list[bool]


def load(rate: float, seed: int) -> Digits:
    """The same split for every seed; which labels are wrong depends on the seed."""
    data = load_digits()
    images = torch.from_numpy(data.images).float().unsqueeze(1) / 16
    order = np.argsort(noise.selected(len(images), 1.0, seed=0))
    train, test = order[:NUM_TRAIN], order[NUM_TRAIN:]
    labels = data.target.astype(np.int64)
    noisy = noise.symmetric(labels[train], NUM_CLASSES, rate, seed, ids=train)
    return Digits(
        train=images[train],
        noisy_labels=torch.from_numpy(noisy),
        true_labels=torch.from_numpy(labels[train]),
        test=images[test],
        test_labels=torch.from_numpy(labels[test]),
    )


def train(method: str, digits: Digits, seed: int, epochs: int, progress: tqdm) -> Run:
    """Train one network; the cross-entropy of each sample goes through the method's loss."""
    torch.manual_seed(seed)
    network = _network()
    criterion = build_loss(**METHODS[method])
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-3)
    accuracy: list[float] = []
    confidence = torch.zeros(len(digits.train))
    for _ in range(epochs):
        network.train()
        for batch in torch.randperm(len(digits.train)).split(BATCH_SIZE):
            logits = network(digits.train[batch])
            losses = F.cross_entropy(logits, digits.noisy_labels[batch], reduction="none")
            optimiser.zero_grad()
            criterion(losses).backward()
            optimiser.step()
            assert isinstance(criterion.confidence, Tensor)
            confidence[batch] += criterion.confidence / epochs
        network.eval()
        with torch.no_grad():
            right = network(digits.test).argmax(-1) == digits.test_labels
        accuracy.append(100 * right.float().mean().item())
        progress.update()
    wrong = digits.noisy_labels != digits.true_labels
    return Run(method, seed, accuracy, confidence.tolist(), wrong.tolist())


def found_among_least_confident(run: Run) -> float:
    """Of the K least confident samples, K the number of wrong labels: percentage that are wrong."""
    wrong = np.array(run.wrong)
    least = np.argsort(run.confidence, kind="stable")[: wrong.sum()]
    return 100 * wrong[least].mean().item() if len(least) else math.nan


def print_table(runs: Sequence[Run], rate: float) -> None:
    """One row a method: mean and deviation over seeds."""
    print(f"\n{rate:.0%} wrong labels, {_count(runs)} seeds, accuracy in % on clean test data")
    print(f"{'':12}{'last epoch':>16}{'best epoch':>16}{'wrong labels found':>22}")
    for method in METHODS:
        own = [run for run in runs if run.method == method]
        last = _mean_and_deviation([run.accuracy[-1] for run in own])
        best = _mean_and_deviation([max(run.accuracy) for run in own])
        found = [found_among_least_confident(run) for run in own]
        weighted = METHODS[method]["name"] != "none"
        shown = _mean_and_deviation(found) if weighted else "-"
        print(f"{method:12}{last:>16}{best:>16}{shown:>22}")
    print("wrong labels found: part of the least confident samples whose label is wrong\n")


def draw(runs: Sequence[Run], rate: float, file: Path) -> None:
    """Accuracy against epochs, and the confidence of right and wrong labels."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for method, colour in COLOURS.items():
        curves = np.array([run.accuracy for run in runs if run.method == method])
        epochs = np.arange(1, curves.shape[1] + 1)
        left.plot(epochs, curves.mean(0), color=colour, label=method, linewidth=2)
        left.fill_between(epochs, curves.min(0), curves.max(0), color=colour, alpha=0.2, lw=0)
    left.set(xlabel="epoch", ylabel="accuracy on clean test data (%)", ylim=(None, 100))
    left.set_title(f"{rate:.0%} of the training labels are wrong ({_count(runs)} seeds)")
    left.legend(loc="lower right", frameon=False)
    weighted = [run for run in runs if METHODS[run.method]["name"] == "superloss"]
    confidence = np.concatenate([run.confidence for run in weighted])
    wrong = np.concatenate([run.wrong for run in weighted])
    bins = np.linspace(0, math.e, 41).tolist()
    for chosen, label, colour in (
        (~wrong, "right label", "#2a9d4a"),
        (wrong, "wrong label", "#d1495b"),
    ):
        right.hist(confidence[chosen], bins, alpha=0.65, label=label, color=colour)
    right.axvline(1, color="black", linewidth=0.8, linestyle=":")
    right.set(xlabel="SuperLoss confidence, mean over the epochs", ylabel="training samples")
    right.set_title("Confidence tells which labels are wrong")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def main(
    output: Path, rate: float = 0.4, seeds: Sequence[int] = (0, 1, 2), epochs: int = 60
) -> list[Run]:
    """Train every method with every seed; write results.json and accuracy.png."""
    output.mkdir(parents=True, exist_ok=True)
    runs = []
    with tqdm(total=len(METHODS) * len(seeds) * epochs, unit="epoch") as progress:
        for seed in seeds:
            digits = load(rate, seed)
            for method in METHODS:
                progress.set_description(f"{method}, seed {seed}")
                runs.append(train(method, digits, seed, epochs, progress))
    write_json(output / "results.json", {"rate": rate, "runs": [asdict(run) for run in runs]})
    draw(runs, rate, output / "accuracy.png")
    print_table(runs, rate)
    print(f"picture: {output / 'accuracy.png'}   numbers: {output / 'results.json'}")
    return runs


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 16, 128),
        nn.ReLU(),
        nn.Linear(128, NUM_CLASSES),
    )


def _count(runs: Sequence[Run]) -> int:
    return len({run.seed for run in runs})


def _mean_and_deviation(values: Sequence[float]) -> str:
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.1f} +- {deviation:.1f}"


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path("output/demo/classification"), help="folder to write"
    )
    parser.add_argument("--rate", type=float, default=0.4, help="part of labels that is wrong")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=60)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(**vars(_parse()))

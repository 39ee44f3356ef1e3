"""The trainer: epochs, tests, label correction, checkpoints from which it goes on exactly."""

import logging
import time
from pathlib import Path

import numpy as np
import torch
from fvcore.common.config import CfgNode
from tqdm import tqdm

from sl_bench import distributed
from sl_bench.checkpoint import check_same_run, load_checkpoint, save_checkpoint
from sl_bench.data import Targets
from sl_bench.evaluation import Evaluation
from sl_bench.images import ImageBatches
from sl_bench.label_correction import corrected_labels, correction_summary
from sl_bench.learner import Learner
from sl_bench.noisy_data import load_data
from sl_bench.result import Row, build_result
from sl_bench.solver import learning_rate, total_epochs, total_steps
from sl_core import noise
from sl_core.json_files import write_json

LAST = "model_last.pth"
logger = logging.getLogger(__name__)


def device_from(cfg: CfgNode) -> torch.device:
    """DEVICE, or a GPU if there is one; with torchrun each process has its own."""
    if cfg.DEVICE:
        return torch.device(cfg.DEVICE)
    if torch.cuda.is_available():
        return torch.device("cuda", distributed.local_rank())
    return torch.device("cpu")


class BenchTrainer:
    """Trains a network on a data set with noise, and once more for each label correction.

    Everything that chance decides in an epoch is a function of (SEED, round, epoch), and the
    checkpoint at its end holds the rest; so a run that was killed and resumed equals one that was
    not, bit for bit on a CPU. N processes with the same BATCH_SIZE equal one, up to rounding and
    without dropout. Batch norm needs GPUs for several processes, which then share its statistics.

    Args:
        cfg: of ``load_config``; OUTPUT_DIR gets model_last.pth, config.yaml, metrics.json,
            result.json and, for superloss and data_params, label_confidence.json.

    Attributes:
        history: one dict of numbers for each epoch that is done, of all rounds.
        corrections: one dict of numbers for each label correction that is done.
        learner: of this round.
    """

    def __init__(self, cfg: CfgNode) -> None:
        self.cfg = cfg
        self.device = device_from(cfg)
        self.output = Path(cfg.OUTPUT_DIR)
        self.data = load_data(cfg)
        self.images = ImageBatches(self.data.train, cfg, self.device)
        self.evaluation = Evaluation(cfg, self.data, self.images)
        self.steps_per_epoch = _steps_per_epoch(cfg, len(self.data.clean_targets))
        self.epochs = total_epochs(cfg.SOLVER, self.steps_per_epoch)
        self.history: list[Row] = []
        self.corrections: list[Row] = []
        self.learner = self._new_learner(self.data.train.targets)

    def resume(self) -> None:
        """Go on from the last checkpoint of OUTPUT_DIR, if there is one."""
        file = self.output / LAST
        if not file.exists():
            logger.info("no finished epoch in %s; starting", self.output)
            return
        state = load_checkpoint(file)
        if "identity" not in state:
            raise ValueError(f"{file} was not written by this trainer: it has no 'identity'")
        check_same_run(file, state["identity"], self._identity())
        self.history, self.corrections = state["history"], state["corrections"]
        self.learner = self._new_learner(state["targets"].numpy())
        self.learner.load_state(state)
        logger.info("going on after epoch %d of %s", len(self.history), file)

    def train(self) -> Row:
        """Run what is missing, and return the result, as in result.json."""
        if distributed.rank() == 0:
            self.output.mkdir(parents=True, exist_ok=True)
            (self.output / "config.yaml").write_text(self.cfg.dump(), encoding="utf-8")
        while True:
            while (epoch := self._epochs_done()) < self.epochs:
                self._run_epoch(epoch)
            if len(self.corrections) == self.cfg.CORRECTION.ROUNDS:
                break
            self._correct_labels()
        result = build_result(self.cfg, self.data, self.history, self.corrections)
        if distributed.rank() == 0:
            write_json(self.output / "result.json", result)
        return result

    def evaluate(self) -> Row:
        """Test metrics and training-set metrics of the network as it is."""
        network = self.learner.network
        row: Row = dict(self.evaluation.of_held_out(network))
        accuracy = row.get("test_accuracy")
        return row | self.evaluation.of_training_set(network, self.learner.targets, accuracy)

    def _new_learner(self, targets: Targets) -> Learner:
        torch.manual_seed(_seed(self.cfg.SEED, len(self.corrections)))
        shape, num_classes = self.images.shape, self.data.num_classes
        return Learner(self.cfg, shape, targets, num_classes, self.device)

    def _epochs_done(self) -> int:
        """Of this round."""
        return sum(row["round"] == len(self.corrections) for row in self.history)

    def _run_epoch(self, epoch: int) -> None:
        cfg, start = self.cfg, time.perf_counter()
        row: Row = {"round": len(self.corrections), "epoch": epoch}
        row |= self._train_epoch(epoch)
        is_last = epoch + 1 == self.epochs
        network = self.learner.network
        if is_last or (epoch + 1) % cfg.EVAL_PERIOD == 0:
            row |= self.evaluation.of_held_out(network)
        period = cfg.TRAIN_EVAL_PERIOD
        if is_last or (period and (epoch + 1) % period == 0):
            accuracy = row.get("test_accuracy")
            row |= self.evaluation.of_training_set(network, self.learner.targets, accuracy)
        row["seconds"] = time.perf_counter() - start
        self.history.append(row)
        if distributed.rank() == 0:
            self._write(is_last)
        logger.info("%s", "  ".join(f"{key}: {value:.4g}" for key, value in row.items()))

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        cfg, count = self.cfg, len(self.learner.targets)
        numbers = (cfg.SEED, len(self.corrections), epoch)
        generator = torch.Generator().manual_seed(_seed(*numbers))
        # For dropout, which differs between the processes.
        torch.manual_seed(_seed(*numbers, distributed.rank()))
        order = torch.randperm(count, generator=generator)
        augments = cfg.DATASET.AUGMENT != "none"
        draws = torch.rand(count, 3, generator=generator) if augments else None
        first = epoch * self.steps_per_epoch
        number = min(self.steps_per_epoch, total_steps(cfg.SOLVER, self.steps_per_epoch) - first)
        batches = order.split(cfg.SOLVER.BATCH_SIZE)[:number]
        mine = [batch[distributed.rank() :: distributed.world_size()] for batch in batches]
        shown = tqdm(
            zip(mine, self.images.load(mine, draws), strict=True),
            desc=f"epoch {epoch + 1}/{self.epochs}",
            total=number,
            unit="step",
            leave=False,
            disable=distributed.rank() > 0,
        )
        sums = torch.zeros(2, dtype=torch.float64)
        for step, (batch, images) in enumerate(shown, start=first):
            rate = learning_rate(cfg.SOLVER, step, self.steps_per_epoch)
            sums += self.learner.step(batch, images, rate)
        seen = number * cfg.SOLVER.BATCH_SIZE
        plain, robust = (distributed.sum_over_processes(sums) / seen).tolist()
        row = {"lr": rate, "loss": plain, "robust_loss": robust} | self.learner.thresholds()
        self.learner.label_confidence.end_epoch()
        wrong = np.asarray(self.learner.targets != self.data.clean_targets)
        if self.learner.has_confidence and wrong.any():
            precision = self.learner.label_confidence.precision(wrong)
            row["wrong_among_least_confident"] = precision
        return row

    def _correct_labels(self) -> None:
        """Replace the labels by the network's predictions, and begin anew with them."""
        outputs = self.evaluation.training_outputs(self.learner.network)
        before = self.learner.targets.astype(np.int64)
        after = corrected_labels(outputs, before, self.cfg.CORRECTION.MIN_PROBABILITY)
        clean = self.data.clean_targets.astype(np.int64)
        self.corrections.append(correction_summary(before, after, clean))
        logger.info("labels corrected: %s", self.corrections[-1])
        self.learner = self._new_learner(after)

    def _write(self, is_last: bool) -> None:
        """Everything about the epoch that ended; the checkpoint last, as it says that it ended."""
        if is_last and self.learner.has_confidence:
            self.learner.label_confidence.write(
                self.output / "label_confidence.json",
                self.data.train.ids,
                self.learner.targets,
                self.data.clean_targets,
            )
        write_json(self.output / "metrics.json", self.history)
        state = {
            "identity": self._identity(),
            "history": self.history,
            "corrections": self.corrections,
        }
        save_checkpoint(self.output / LAST, state | self.learner.state())

    def _identity(self) -> dict[str, str]:
        labels = noise.digest(self.data.train.targets) + noise.digest(self.data.train.ids)
        return {"config": self.cfg.dump(), "labels": labels}


def _steps_per_epoch(cfg: CfgNode, count: int) -> int:
    size, world = cfg.SOLVER.BATCH_SIZE, distributed.world_size()
    if size % world:
        raise ValueError(
            f"SOLVER.BATCH_SIZE is {size}, expected a multiple of {world}, the number of processes"
        )
    if count < size:
        raise ValueError(
            f"SOLVER.BATCH_SIZE is {size}, expected at most {count}, the number of training images"
        )
    return int(count // size)


def _seed(seed: int, *numbers: int) -> int:
    """A seed for each (seed, round), (seed, round, epoch) and (seed, round, epoch, process)."""
    # numpy takes missing numbers for zeros, so that (1,) and (1, 0) would be the same.
    entropy = [seed, *(number + 1 for number in numbers)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])

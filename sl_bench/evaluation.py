"""What a network says about images in evaluation mode, and how good that is."""

import torch
from fvcore.common.config import CfgNode
from torch import Tensor, nn
from tqdm import tqdm

from sl_bench import distributed
from sl_bench.data import Split, Targets
from sl_bench.images import ImageBatches
from sl_bench.metrics import held_out_metrics, hybrid_accuracy, training_metrics
from sl_bench.noisy_data import BenchData


@torch.no_grad()
def predict(
    network: nn.Module, images: ImageBatches, count: int, batch_size: int, title: str
) -> Tensor:
    """Outputs (count, C) for all images of a split, on the CPU, the same on every process.

    Args:
        network: is in evaluation mode afterwards.
        images: of the split.
        count: their number.
        batch_size: of a forward pass.
        title: of the progress bar.
    """
    network.eval()
    batches = torch.arange(count).split(batch_size)[distributed.rank() :: distributed.world_size()]
    outputs: Tensor | None = None
    is_quiet = distributed.rank() > 0
    shown = tqdm(batches, desc=title, unit="batch", leave=False, disable=is_quiet)
    for batch, of_batch in zip(shown, images.load(batches), strict=True):
        part = network(of_batch).float().cpu()
        if outputs is None:
            outputs = torch.zeros(count, part.shape[1])
        outputs[batch] = part
    if outputs is None:
        # A process without a batch takes part in the sum all the same.
        width = network(torch.zeros(1, *images.shape, device=images.device)).shape[1]
        outputs = torch.zeros(count, width)
    return distributed.sum_over_processes(outputs)


class Evaluation:
    """The test set, the validation set and the training set of a run.

    Args:
        cfg: of ``load_config``.
        data: whose images are evaluated.
        train_images: of the training set; the others are normalised in the same way.
    """

    def __init__(self, cfg: CfgNode, data: BenchData, train_images: ImageBatches) -> None:
        self.task, self.threshold = cfg.TASK, cfg.TRUNCATE
        self.batch_size = cfg.EVAL_BATCH_SIZE
        self.data = data
        self.train_images = train_images
        splits: dict[str, Split | None] = {"test": data.test, "val": data.validation}
        self.held_out = {
            name: (
                ImageBatches(split, cfg, train_images.device, train_images.normalisation),
                as_targets(split.targets),
            )
            for name, split in splits.items()
            if split is not None
        }

    def of_held_out(self, network: nn.Module) -> dict[str, float]:
        """test_* and, if there is a validation set, val_*."""
        row: dict[str, float] = {}
        for name, (images, targets) in self.held_out.items():
            outputs = predict(network, images, len(targets), self.batch_size, name)
            found = held_out_metrics(self.task, outputs, targets, self.threshold)
            row |= {f"{name}_{key}": value for key, value in found.items()}
        return row

    def of_training_set(
        self, network: nn.Module, given: Targets, test_accuracy: float | None
    ) -> dict[str, float]:
        """The columns of ``sl_bench.metrics``.

        Args:
            network: trained.
            given: (N,) targets that it was trained on.
            test_accuracy: of the same network, for the hybrid accuracy; None leaves it out.
        """
        outputs = self.training_outputs(network)
        clean = as_targets(self.data.clean_targets)
        row = training_metrics(self.task, outputs, as_targets(given), clean)
        if self.task == "classification" and test_accuracy is not None:
            row["hybrid_accuracy"] = hybrid_accuracy(
                test_accuracy, len(self.data.test.targets), row["train_accuracy_true"], len(clean)
            )
        return row

    def training_outputs(self, network: nn.Module) -> Tensor:
        """Outputs (N, C) for the training images, without augmentation."""
        count = len(self.data.clean_targets)
        return predict(network, self.train_images, count, self.batch_size, "training set")


def as_targets(targets: Targets) -> Tensor:
    """Classes as int64; numbers as float32, which is what networks give."""
    tensor = torch.from_numpy(targets)
    return tensor.float() if tensor.is_floating_point() else tensor

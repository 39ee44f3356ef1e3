"""What a training says about each annotation: mean confidence and mean predicted class."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from detectron2.engine import HookBase
from detectron2.utils import comm
from torch import Tensor, nn

from sl_core.json_files import write_json
from sl_detectron.noisy_datasets import is_wrong
from sl_detectron.weighting import LOG_PERIOD, Observation


class AnnotationConfidence:
    """Sums over a training, one row an annotation; part of the checkpoint.

    Args:
        ids: ids of all annotations of the training set.
        num_classes: number of foreground classes K.
    """

    def __init__(self, ids: Iterable[int], num_classes: int) -> None:
        ordered = sorted(ids)
        repeated = {a for a, b in itertools.pairwise(ordered) if a == b}
        if repeated:
            raise ValueError(f"annotation ids {sorted(repeated)[:5]} occur more than once")
        self.ids = torch.tensor(ordered, dtype=torch.int64)
        # Columns: number of boxes, sum of confidences, sums of K probabilities.
        self.sums = torch.zeros(len(self.ids), 2 + num_classes)
        # What this process of a distributed run has seen since the latest synchronise.
        self._pending = torch.zeros_like(self.sums) if comm.get_world_size() > 1 else None

    def rows(self, ids: Tensor) -> Tensor:
        """Positions of annotations in ``ids``; ValueError for an unknown one."""
        rows = torch.searchsorted(self.ids, ids).clamp(max=max(len(self.ids) - 1, 0))
        if len(ids) and not torch.equal(self.ids[rows], ids):
            raise ValueError("the data have annotation ids that the training set does not have")
        return rows

    def add(self, observation: Observation) -> None:
        """Add a training step of this process."""
        ids = observation.ids.cpu()
        columns = torch.cat(
            (
                torch.ones(len(ids), 1),
                observation.confidence.float().cpu().unsqueeze(1),
                observation.probabilities.float().cpu(),
            ),
            dim=1,
        )
        sums = self.sums if self._pending is None else self._pending
        sums.index_add_(0, self.rows(ids), columns)

    def synchronise(self) -> None:
        """Add up what the processes of a distributed run have seen; a collective call."""
        if self._pending is not None:
            shared = self._pending.to(comm_device())
            torch.distributed.all_reduce(shared)
            self.sums += shared.cpu()
            self._pending.zero_()

    def mean_confidence(self, ids: Sequence[int]) -> Tensor:
        """Mean confidence of the given annotations; nan for one that no box was matched to."""
        rows = self.rows(torch.tensor(ids, dtype=torch.int64))
        return self.sums[rows, 1] / self.sums[rows, 0]

    def mean_probabilities(self, ids: Sequence[int]) -> Tensor:
        """Mean predicted probabilities of the given annotations: (len(ids), K)."""
        rows = self.rows(torch.tensor(ids, dtype=torch.int64))
        return self.sums[rows, 2:] / self.sums[rows, :1]

    def state_dict(self) -> dict[str, Tensor]:
        """For the checkpoint; call ``synchronise`` before."""
        return {"ids": self.ids, "sums": self.sums}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a checkpoint."""
        if not torch.equal(state["ids"], self.ids):
            raise ValueError(
                f"the checkpoint has confidences of {len(state['ids'])} annotations, the training "
                f"set has {len(self.ids)} and others: was DATASETS.TRAIN changed?"
            )
        self.sums = state["sums"].clone()


def comm_device() -> torch.device:
    """The device on which the processes exchange tensors."""
    backend = torch.distributed.get_backend()
    return torch.device("cuda" if backend == "nccl" else "cpu")


class RecordAnnotationConfidence(HookBase):
    """Collects the observations of a model's heads, and writes annotation_confidence.json.

    Goes before the hook that saves checkpoints.

    Args:
        record: where to add; also given to the checkpointer.
        dicts: the training set, with ids (see ``add_annotation_ids``).
        period: iterations between two checkpoints.
        output: folder for annotation_confidence.json.
    """

    def __init__(
        self, record: AnnotationConfidence, dicts: list[dict[str, Any]], period: int, output: str
    ) -> None:
        self.record = record
        self.dicts = dicts
        self.period = period
        self.output = Path(output)
        truth = {
            a["id"]: is_wrong(a)
            for d in dicts
            for a in d.get("annotations", ())
            if "clean_category_id" in a or "clean_bbox" in a
        }
        self._wrong = torch.tensor([truth.get(i, False) for i in record.ids.tolist()])
        self._has_truth = bool(truth)

    def after_step(self) -> None:
        """Add what this step's boxes said."""
        found = (
            getattr(module, "observation", None)
            for module in _unwrapped(self.trainer.model).modules()
        )
        observations = [each for each in found if isinstance(each, Observation)]
        for observation in observations:
            self.record.add(observation)
        iteration = self.trainer.iter + 1
        if self._has_truth and self.trainer.iter % LOG_PERIOD == 0:
            self._log_truth(observations)
        if iteration % self.period == 0 or iteration == self.trainer.max_iter:
            self.record.synchronise()

    def after_train(self) -> None:
        """Write the annotations, least confident first."""
        if comm.is_main_process() and self.trainer.iter + 1 >= self.trainer.max_iter:
            write_json(self.output / "annotation_confidence.json", self._rows())

    def _log_truth(self, observations: list[Observation]) -> None:
        storage = self.trainer.storage
        for observation in observations:
            wrong = self._wrong[self.record.rows(observation.ids.cpu())]
            confidence = observation.confidence.cpu()
            for name, chosen in (("right", ~wrong), ("wrong", wrong)):
                if chosen.any():
                    value = confidence[chosen].mean().item()
                    storage.put_scalar(f"sl/confidence_{name}_labels", value)

    def _rows(self) -> list[dict[str, Any]]:
        entries = [
            (record, position, annotation)
            for record in self.dicts
            for position, annotation in enumerate(record.get("annotations", ()))
        ]
        ids = [annotation["id"] for _, _, annotation in entries]
        confidence = self.record.mean_confidence(ids).tolist()
        probabilities = self.record.mean_probabilities(ids)
        rows = [
            {
                "id": annotation["id"],
                "image_id": record["image_id"],
                "file_name": record["file_name"],
                "position": position,
                "category_id": annotation["category_id"],
                "confidence": c,
                "probability": p[annotation["category_id"]].item(),
                "predicted_category_id": int(p.argmax()),
                **({"wrong": is_wrong(annotation)} if self._has_truth else {}),
            }
            for (record, position, annotation), c, p in zip(
                entries, confidence, probabilities, strict=True
            )
            if c == c  # annotations that no box was matched to have nothing to tell
        ]
        # Losses other than SuperLoss have no confidence; the probability then tells.
        return sorted(rows, key=lambda row: (row["confidence"], row["probability"]))


def _unwrapped(model: nn.Module) -> nn.Module:
    inner = getattr(model, "module", model)
    assert isinstance(inner, nn.Module)
    return inner

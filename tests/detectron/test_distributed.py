"""Two gloo processes: the same thresholds, the gradient of the joined batch, joint confidences."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from detectron2.structures import Boxes, Instances
from detectron2.utils.events import EventStorage
from torch.nn.parallel import DistributedDataParallel

from sl_detectron.annotation_confidence import AnnotationConfidence
from sl_detectron.weighting import Observation
from tests.detectron.small_models import NUM_CLASSES, build, config

CLS = "MODEL.ROBUST_LOSS.CLS"
OPTIONS = (
    f"{CLS}.NAME",
    "superloss",
    f"{CLS}.LAMBDA",
    0.25,
    "MODEL.ROBUST_LOSS.BOX.NAME",
    "superloss",
)


def predictor() -> Any:
    return build(config("FPN", *OPTIONS)).roi_heads.box_predictor


def proposals(rank: int) -> tuple[torch.Tensor, list[Instances]]:
    """Features of 20 boxes and their labels; the ranks have different numbers of foreground."""
    generator = torch.Generator().manual_seed(rank)
    boxes = torch.rand(20, 2, generator=generator) * 40
    instances = Instances((96, 96))
    instances.proposal_boxes = Boxes(torch.cat((boxes, boxes + 20), dim=1))
    instances.gt_boxes = Boxes(torch.cat((boxes + 2, boxes + 25), dim=1))
    classes = torch.randint(0, NUM_CLASSES, (20,), generator=generator)
    classes[5 + 8 * rank :] = NUM_CLASSES
    instances.gt_classes = classes
    instances.gt_ids = torch.arange(20) + 100 * rank
    return torch.randn(20, 32, generator=generator), [instances]


class Loss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.predictor = predictor()

    def forward(self, features: torch.Tensor, instances: list[Instances]) -> torch.Tensor:
        with EventStorage():
            losses = self.predictor.losses(self.predictor(features), instances)
        total: torch.Tensor = sum(losses.values())
        return total


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def train_on_one_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = Loss()
    wrapped = DistributedDataParallel(model, broadcast_buffers=False)
    for _ in range(3):
        model.zero_grad()
        wrapped(*proposals(rank)).backward()
    record = AnnotationConfidence([7, 3, 5], NUM_CLASSES)
    ids = torch.tensor([3, 5] if rank == 0 else [5])
    record.add(Observation(ids, torch.full((len(ids),), 1.0 + rank), torch.ones(len(ids), 5)))
    record.synchronise()
    result = {
        "gradients": gradients(model),
        "state": model.state_dict(),
        "mean": record.mean_confidence([3, 5, 7]),
    }
    torch.save(result, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("ddp")
    mp.spawn(train_on_one_rank, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


def test_a_step_equals_one_process_with_the_joined_batch(ranks: list[Any]) -> None:
    alone = Loss()
    (features, first), (more, second) = (proposals(rank) for rank in range(2))
    for _ in range(3):
        alone.zero_grad()
        alone(torch.cat((features, more)), [*first, *second]).backward()
    for rank in ranks:
        torch.testing.assert_close(rank["gradients"], gradients(alone), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(dict(rank["state"]), dict(alone.state_dict()))
    torch.testing.assert_close(dict(ranks[0]["state"]), dict(ranks[1]["state"]), rtol=0, atol=0)


def test_confidences_of_all_processes_are_added_up(ranks: list[Any]) -> None:
    for rank in ranks:
        assert rank["mean"][:2].tolist() == [1.0, 1.5]
        assert rank["mean"][2].isnan()

"""Data Parameters: their SGD against a brute force by autograd over all images."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sl_bench.data_parameters import DataParameters
from sl_core import data_params_loss

IMAGES, CLASSES, LAM = 12, 3, 0.05
LABELS = torch.arange(IMAGES) % CLASSES


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randperm(IMAGES, generator=generator)[:5],
            3 * torch.randn(5, CLASSES, generator=generator),
        )
        for _ in range(6)
    ]


def loss_of(logits: Tensor, indices: Tensor, confidence: Tensor) -> Tensor:
    return data_params_loss(logits, LABELS[indices], confidence, LAM).sum() / len(indices)


@pytest.mark.parametrize("class_lr", [0.0, 0.3])
def test_steps_equal_a_brute_force(class_lr: float) -> None:
    """The reference differentiates the written-out formula with respect to every image's c."""
    module = DataParameters(IMAGES, CLASSES, lr=0.5, class_lr=class_lr, momentum=0.9, limit=1e6)
    image = torch.zeros(IMAGES, requires_grad=True)
    class_ = torch.zeros(CLASSES, requires_grad=True)
    velocity, class_velocity = torch.zeros(IMAGES), torch.zeros(CLASSES)
    for indices, logits in batches():
        loss_of(logits, indices, module.confidence(indices, LABELS[indices])).backward()
        module.step()
        c = image + class_[LABELS]
        total = torch.zeros(())
        for z, index in zip(logits, indices.tolist(), strict=True):
            scaled = c[index].exp() * z
            total = total - F.log_softmax(scaled, 0)[LABELS[index]] + LAM * c[index] ** 2
        of_image, of_class = torch.autograd.grad(total / len(indices), (image, class_))
        with torch.no_grad():
            for index in indices.tolist():
                velocity[index] = 0.9 * velocity[index] + of_image[index]
                image[index] -= 0.5 * velocity[index]
            class_velocity.mul_(0.9).add_(of_class)
            class_ -= class_lr * class_velocity
        torch.testing.assert_close(module.images, image.detach())
        torch.testing.assert_close(module.classes, class_.detach())
    assert module.images.any() and module.classes.any() == bool(class_lr)


def test_images_outside_the_batch_are_left_alone() -> None:
    module = DataParameters(IMAGES, CLASSES, lr=0.5)
    (indices, logits), (others, more) = batches()[:2]
    loss_of(logits, indices, module.confidence(indices, LABELS[indices])).backward()
    module.step()
    before = module.images.clone()
    loss_of(more, others, module.confidence(others, LABELS[others])).backward()
    module.step()
    outside = [i for i in range(IMAGES) if i not in others.tolist()]
    assert torch.equal(module.images[outside], before[outside])
    assert not torch.equal(module.images[others], before[others])


def test_a_wrong_label_loses_confidence_and_a_right_one_gains_it_within_the_limit() -> None:
    module = DataParameters(2, 2, lr=5.0, limit=4.0)
    logits, labels = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
    for _ in range(50):
        confidence = module.confidence(torch.arange(2), labels)
        data_params_loss(logits, labels, confidence).sum().backward()
        module.step()
    torch.testing.assert_close(module.images.exp(), torch.tensor([4.0, 0.25]))
    assert math.isclose(module.limit, math.log(4))

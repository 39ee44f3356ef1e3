"""Data Parameters: a confidence for each training image, learned along with the network.

The supplementary's section 1, eq. 3: cross-entropy of sigma z with sigma > 0 the confidence of the
image. sigma = exp(c), and c is learned by its own SGD with momentum, from 0, so sigma = 1. A class
can have a confidence too; then c is the sum of the image's and its class's.
"""

import math

import torch
from torch import Tensor, nn

from sl_bench import distributed


class DataParameters(nn.Module):
    """Holds and updates the logarithms c of the confidences.

    In each step call ``confidence``, differentiate a loss of the result, call ``step``. Images that
    are not in the batch are left alone, their momentum too.

    Args:
        num_images: of the training set.
        num_classes: of the labels.
        lr: learning rate of the images' c.
        class_lr: learning rate of the classes' c; 0 keeps them at 0.
        momentum: in [0, 1), of both.
        limit: sigma stays in [1 / limit, limit], the image's and the class's each.
    """

    images: Tensor
    image_velocity: Tensor
    classes: Tensor
    class_velocity: Tensor

    def __init__(
        self,
        num_images: int,
        num_classes: int,
        lr: float,
        class_lr: float = 0.0,
        momentum: float = 0.9,
        limit: float = 20.0,
    ) -> None:
        super().__init__()
        self.lr, self.class_lr = lr, class_lr
        self.momentum, self.limit = momentum, math.log(limit)
        for name, count in (("images", num_images), ("image_velocity", num_images)):
            self.register_buffer(name, torch.zeros(count))
        for name, count in (("classes", num_classes), ("class_velocity", num_classes)):
            self.register_buffer(name, torch.zeros(count))
        self._batch: tuple[Tensor, Tensor, Tensor] | None = None

    def confidence(self, indices: Tensor, labels: Tensor) -> Tensor:
        """sigma (B,) of images of the training set, with a graph.

        Args:
            indices: (B,) different images.
            labels: (B,) their classes.
        """
        of_images = self.images[indices].requires_grad_()
        of_classes = self.classes.clone().requires_grad_()
        self._batch = indices, of_images, of_classes
        return (of_images + of_classes[labels]).exp()

    @torch.no_grad()
    def step(self) -> None:
        """Move what the latest ``confidence`` was made of against its gradient.

        In a distributed run a collective call; every process then has the same values.
        """
        assert self._batch is not None, "confidence() comes first"
        indices, of_images, of_classes = self._batch
        assert of_images.grad is not None and of_classes.grad is not None
        indices = distributed.gather(indices)
        gradient = distributed.gather(of_images.grad)
        velocity = self.momentum * self.image_velocity[indices] + gradient
        self.image_velocity[indices] = velocity
        moved = self.images[indices] - self.lr * velocity
        self.images[indices] = moved.clamp(-self.limit, self.limit)
        if self.class_lr:
            gradient = distributed.sum_over_processes(of_classes.grad)
            self.class_velocity.mul_(self.momentum).add_(gradient)
            self.classes.sub_(self.class_lr * self.class_velocity)
            self.classes.clamp_(-self.limit, self.limit)
        self._batch = None

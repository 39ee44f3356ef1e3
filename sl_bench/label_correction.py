"""Label correction (gradient_rescaling.txt, E): what a network predicts becomes the label."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Labels = NDArray[np.int64]


def corrected_labels(outputs: Tensor, labels: Labels, min_probability: float = 0.0) -> Labels:
    """Replace labels by the network's predictions, where it is sure enough.

    Args:
        outputs: (N, C) logits of the training images in evaluation mode.
        labels: (N,) that it was trained on.
        min_probability: a prediction of less leaves the label as it is; 0 replaces all, as in the
            paper.

    Returns:
        New labels (N,); the argument is not changed.
    """
    probability, prediction = outputs.double().softmax(-1).max(-1)
    sure = probability.numpy() >= min_probability
    return np.where(sure, prediction.numpy(), labels)


def correction_summary(before: Labels, after: Labels, clean: Labels) -> dict[str, float]:
    """How many labels were changed, and the percentage of right ones before and after."""
    return {
        "labels_changed": int((before != after).sum()),
        "right_labels_before": 100 * float((before == clean).mean()),
        "right_labels_after": 100 * float((after == clean).mean()),
    }

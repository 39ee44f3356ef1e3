"""Accuracies in percent and absolute errors, in the columns of the papers' tables.

Of the training set, the wrong part are the images whose label is wrong, the right part the others:

=========================  ======================================================================
train_accuracy_given       all, with the labels that were trained on: gradient_rescaling.txt,
                           table 3, corrupted
train_accuracy_true        all, with the true labels: table 3, intact
fit_of_wrong_labels        the wrong part, with its wrong labels, so lower is better: imae.txt,
                           table 6, noisy subset; gradient_rescaling.txt, table 11
fit_of_right_labels        the right part: table 6 and table 11, clean subset
hybrid_accuracy            test and training images together, with true labels: imae.txt, table 6.
                           (Its text says clean training set. Only all training images with true
                           labels give its numbers: 98.5 of 91.3 and 100 without noise, 72.6 of
                           67.0 with 40 %.)
=========================  ======================================================================

For regression the same with the mean absolute error in place of the accuracy.
"""

import math

import torch
from torch import Tensor


def accuracy(outputs: Tensor, labels: Tensor) -> float:
    """Percentage of logits (N, C) whose largest is that of the label (N,); nan for N = 0."""
    return _percent(outputs.argmax(-1) == labels)


def absolute_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """|y - prediction| (N,) in float64, of outputs (N, 1) and targets (N,)."""
    return (outputs.squeeze(-1).double() - targets.double()).abs()


def truncated_error(outputs: Tensor, targets: Tensor, threshold: float) -> float:
    """Mean of min(t, |y - prediction|): supplementary, 3.1; nan for N = 0."""
    return _mean(absolute_errors(outputs, targets).clamp(max=threshold))


def held_out_metrics(
    task: str, outputs: Tensor, targets: Tensor, threshold: float
) -> dict[str, float]:
    """Metrics of a test or validation set.

    Args:
        task: classification or regression.
        outputs: (N, C), or (N, 1) for regression.
        targets: (N,)
        threshold: of the truncated error.
    """
    if task == "classification":
        return {"accuracy": accuracy(outputs, targets)}
    return {
        "mae": _mean(absolute_errors(outputs, targets)),
        "truncated_error": truncated_error(outputs, targets, threshold),
    }


def training_metrics(task: str, outputs: Tensor, given: Tensor, clean: Tensor) -> dict[str, float]:
    """Metrics of the training set in evaluation mode; see above.

    Args:
        task: classification or regression.
        outputs: (N, C), or (N, 1) for regression.
        given: (N,) targets that were trained on.
        clean: (N,) true targets.
    """
    wrong = given != clean
    if task == "classification":
        prediction = outputs.argmax(-1)
        return {
            "train_accuracy_given": _percent(prediction == given),
            "train_accuracy_true": _percent(prediction == clean),
            "fit_of_wrong_labels": _percent((prediction == given)[wrong]),
            "fit_of_right_labels": _percent((prediction == given)[~wrong]),
        }
    errors = absolute_errors(outputs, given)
    return {
        "train_mae_given": _mean(errors),
        "train_mae_true": _mean(absolute_errors(outputs, clean)),
        "mae_of_wrong_targets": _mean(errors[wrong]),
        "mae_of_right_targets": _mean(errors[~wrong]),
    }


def hybrid_accuracy(test: float, test_count: int, train_true: float, train_count: int) -> float:
    """Accuracy over test and training images together, with true labels."""
    return (test * test_count + train_true * train_count) / (test_count + train_count)


def _percent(right: Tensor) -> float:
    return 100 * _mean(right.double())


def _mean(values: Tensor) -> float:
    return values.mean(dtype=torch.float64).item() if values.numel() else math.nan

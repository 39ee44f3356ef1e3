"""Learning rates as a function of the step, and weights from files."""

from pathlib import Path

import pytest
import torch

from sl_bench.checkpoint import load_checkpoint, load_weights, save_checkpoint
from sl_bench.config import load_config
from sl_bench.networks import build_network
from sl_bench.solver import build_optimizer, learning_rate, total_epochs, total_steps


def rates(steps: list[int], *options: str) -> list[float]:
    solver = load_config(None, ["SOLVER.BASE_LR", "1.0", *options]).SOLVER
    return [learning_rate(solver, step, 10) for step in steps]


def test_milestones_count_epochs_or_with_iterations_steps() -> None:
    step = ["SOLVER.SCHEDULE", "step", "SOLVER.GAMMA", "0.5"]
    steps = [0, 19, 20, 29, 30]
    expected = pytest.approx([1, 1, 0.5, 0.5, 0.25])
    assert rates(steps, *step, "SOLVER.MILESTONES", "[2, 3]") == expected
    in_steps = ["SOLVER.ITERATIONS", "45", "SOLVER.MILESTONES", "[20, 30]"]
    assert rates(steps, *step, *in_steps) == expected
    solver = load_config(None, in_steps).SOLVER
    assert total_steps(solver, 10) == 45 and total_epochs(solver, 10) == 5


def test_cosine_falls_from_all_to_nothing_and_the_warm_up_rises() -> None:
    cosine = ["SOLVER.SCHEDULE", "cosine", "SOLVER.EPOCHS", "4"]
    assert rates([0, 20, 40], *cosine) == pytest.approx([1, 0.5, 0], abs=1e-12)
    warm = ["SOLVER.SCHEDULE", "constant", "SOLVER.WARMUP_EPOCHS", "2"]
    assert rates([0, 9, 19, 20, 100], *warm) == pytest.approx([0.05, 0.5, 1, 1, 1])


def test_the_optimizer_has_the_settings() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1))]
    options = ["SOLVER.NESTEROV", "True", "SOLVER.WEIGHT_DECAY", "0.5"]
    group = build_optimizer(load_config(None, options).SOLVER, weights).param_groups[0]
    assert (group["nesterov"], group["momentum"], group["weight_decay"]) == (True, 0.9, 0.5)
    options = ["SOLVER.OPTIMIZER", "adam", "SOLVER.ADAM_EPS", "0.1"]
    assert build_optimizer(load_config(None, options).SOLVER, weights).defaults["eps"] == 0.1


def test_weights_fit_but_for_a_last_layer_of_another_size(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    source = build_network("small_cnn", (1, 8, 8), 10)
    save_checkpoint(file, {"network": source.state_dict()})
    same, other = (build_network("small_cnn", (1, 8, 8), n) for n in (10, 3))
    before = other.get_parameter("fc.weight").clone()
    load_weights(same, file)
    load_weights(other, file)
    torch.testing.assert_close(same.state_dict(), source.state_dict(), rtol=0, atol=0)
    first = "features.0.weight"
    assert torch.equal(other.get_parameter(first), source.get_parameter(first))
    assert torch.equal(other.get_parameter("fc.weight"), before)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    network = build_network("small_cnn", (1, 8, 8), 10)
    save_checkpoint(file, build_network("small_cnn", (3, 8, 8), 10).state_dict())
    with pytest.raises(ValueError, match=r"features\.0\.weight of shape \(32, 3, 3, 3\), expected"):
        load_weights(network, file)
    save_checkpoint(file, build_network("resnet20", (1, 8, 8), 10).state_dict())
    with pytest.raises(ValueError, match=rf"{file} has .*, which is not a part of the network"):
        load_weights(network, file)
    state = network.state_dict()
    del state["features.3.bias"]
    save_checkpoint(file, dict(state))
    with pytest.raises(ValueError, match=r"has no features\.3\.bias"):
        load_weights(network, file)


class Planted:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return Path.mkdir, (self.folder,)


def test_a_checkpoint_is_never_executed_and_damage_is_named(tmp_path: Path) -> None:
    file, marker = tmp_path / "model.pth", tmp_path / "executed"
    torch.save({"network": Planted(marker)}, file)
    with pytest.raises(ValueError, match=f"{file} is damaged or another kind of file"):
        load_checkpoint(file)
    assert not marker.exists()
    save_checkpoint(file, {"network": torch.zeros(100)})
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ValueError, match=f"{file} is damaged"):
        load_checkpoint(file)
    with pytest.raises(ValueError, match="does not exist"):
        load_checkpoint(tmp_path / "nothing.pth")

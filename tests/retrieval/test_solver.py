"""Learning rates and weight decay of each part, and their course over the epochs."""

import math

import pytest
import torch
from torch import nn

from sl_retrieval.network import ImageRetrievalNet
from sl_retrieval.pooling import MAC, GeM, GeMmp, Rpool
from sl_retrieval.solver import build_optimizer, parameter_groups, set_learning_rates


def small_network(pool: nn.Module, *, whitenings: bool = False) -> ImageRetrievalNet:
    lwhiten, whiten = (nn.Linear(4, 4), nn.Linear(4, 4)) if whitenings else (None, None)
    return ImageRetrievalNet([nn.Conv2d(3, 4, 3), nn.ReLU()], lwhiten, pool, whiten, {})


def names_of_groups(network: ImageRetrievalNet) -> list[list[str]]:
    names = {parameter: name for name, parameter in network.named_parameters()}
    return [[names[p] for p in group["params"]] for group in parameter_groups(network, 1.0, 0.1)]


def test_groups_have_the_order_of_cirtorch() -> None:
    """Its optimizer state can only be resumed if the parameters come in the same order."""
    assert names_of_groups(small_network(MAC())) == [["features.0.weight", "features.0.bias"]]
    assert names_of_groups(small_network(Rpool(GeM(), nn.Linear(4, 4)), whitenings=True)) == [
        ["features.0.weight", "features.0.bias"],
        ["lwhiten.weight", "lwhiten.bias"],
        ["pool.rpool.p"],
        ["pool.whiten.weight", "pool.whiten.bias"],
        ["whiten.weight", "whiten.bias"],
    ]


@pytest.mark.parametrize("regional", [False, True])
@pytest.mark.parametrize(("pool", "factor"), [(GeM(), 10), (GeMmp(4), 100)])
def test_exponents_learn_faster_and_do_not_decay(
    pool: nn.Module, factor: int, regional: bool
) -> None:
    seated = Rpool(pool, nn.Linear(4, 4)) if regional else pool
    network = small_network(seated, whitenings=True)
    groups = parameter_groups(network, 0.01, 0.5)
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    for group in groups:
        is_exponent = group["params"][0] is pool.p
        assert group["lr"] == pytest.approx(0.01 * (factor if is_exponent else 1))
        assert group["weight_decay"] == (0 if is_exponent else 0.5)


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)])
def test_optimizers(name: str, kind: type[torch.optim.Optimizer]) -> None:
    optimizer = build_optimizer(small_network(GeM()), name, 0.1, 0.2, 0.7)
    assert type(optimizer) is kind
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 1.0]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]
    assert [group.get("momentum", 0.7) for group in optimizer.param_groups] == [0.7, 0.7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "rmsprop"}, "name is 'rmsprop', expected one of adam, sgd"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"momentum": 1.0}, "momentum is 1.0"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_optimizer(small_network(GeM()), **options)  # type: ignore[arg-type]
    optimizer = build_optimizer(small_network(GeM()))
    with pytest.raises(ValueError, match="decay is -1"):
        set_learning_rates(optimizer, -1, 0)
    with pytest.raises(ValueError, match="epoch is -1"):
        set_learning_rates(optimizer, 0.1, -1)


def rates_of_epochs(
    optimizer: torch.optim.Optimizer, epochs: range, decay: float
) -> list[list[float]]:
    rates = []
    for epoch in epochs:
        set_learning_rates(optimizer, decay, epoch)
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
    return rates


def test_epoch_k_runs_at_the_decayed_rate_also_after_a_resume() -> None:
    first = build_optimizer(small_network(GeM()), "adam", 0.1, 0.0)
    rates = rates_of_epochs(first, range(7), 0.3)
    for epoch, (plain, exponent) in enumerate(rates):
        assert plain == pytest.approx(0.1 * math.exp(-0.3 * (epoch + 1)))
        assert exponent == pytest.approx(10 * plain)

    stopped = build_optimizer(small_network(GeM()), "adam", 0.1, 0.0)
    rates_of_epochs(stopped, range(4), 0.3)
    resumed = build_optimizer(small_network(GeM()), "adam", 0.1, 0.0)
    resumed.load_state_dict(stopped.state_dict())
    assert rates_of_epochs(resumed, range(4, 7), 0.3) == rates[4:]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_rates_are_those_of_torchs_exponential_decay() -> None:
    ours = build_optimizer(small_network(GeM()), "sgd", 0.1, 0.0)
    theirs = build_optimizer(small_network(GeM()), "sgd", 0.1, 0.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(theirs, gamma=math.exp(-0.01))
    for rates in rates_of_epochs(ours, range(20), 0.01):
        scheduler.step()
        assert rates == pytest.approx([group["lr"] for group in theirs.param_groups])

"""Every YAML loads and builds its network and loss; the README's map leads to files and rows."""

import re
from pathlib import Path

import pytest
import torch

from sl_bench.comparison import is_row_of
from sl_bench.config import load_config
from sl_bench.criterion import build_criterion
from sl_bench.networks import build_network
from sl_bench.published import PublishedResult, read_published

CONFIGS = Path(__file__).parents[2] / "configs" / "bench"
FILES = sorted(CONFIGS.rglob("*.yaml"))
LEAVES = [f for f in FILES if not f.stem.startswith("base_") and f.parent.name != "methods"]
README = (CONFIGS / "README.md").read_text(encoding="utf-8")
MAP = re.findall(r"^\| (\w+) (\d+) \| ([^|,]+)(?:, ([^|]+))? \| `(.+?)` \| (.*) ?\|$", README, re.M)
CHANNELS = {"digits": (1, 8), "mnist": (1, 28), "fashion_mnist": (1, 28)}
CLASSES = {"cifar100": 100, "clothing1m": 14}


def name_of(file: Path) -> str:
    return file.relative_to(CONFIGS).with_suffix("").as_posix()


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_every_yaml_loads_and_builds_network_and_loss(file: Path) -> None:
    cfg = load_config(file, [])
    channels, side = CHANNELS.get(cfg.DATASET.NAME, (3, cfg.DATASET.IMAGE_SIZE or 32))
    classes = len(cfg.DATASET.CLASSES) or CLASSES.get(cfg.DATASET.NAME, 10)
    classes = 0 if cfg.TASK == "regression" else classes
    shape = (channels, side, side)
    with torch.device("meta"):
        network = build_network(cfg.MODEL.NAME, shape, classes or 1, cfg.MODEL.DROPOUT)
        outputs = network(torch.zeros(2, *shape))
    assert outputs.shape == (2, classes or 1)
    criterion = build_criterion(cfg, classes)
    targets = torch.zeros(2, dtype=torch.float if classes == 0 else torch.long)
    made = torch.rand(outputs.shape, requires_grad=True)
    criterion(made, targets, torch.ones(2)).sum().backward()
    assert made.grad is not None
    assert made.grad.isfinite().all()


def test_leaves_write_to_folders_of_their_own_and_are_described() -> None:
    folders = {load_config(file, []).OUTPUT_DIR for file in LEAVES}
    assert folders == {f"output/bench/{name_of(f).replace('/', '_')}" for f in LEAVES}
    described = {entry[4] for entry in MAP}
    for braced in re.findall(r"`(\w+_\{[^`]+)`", README):
        names = [""]
        for text, choices in re.findall(r"([^{}]+)(?:\{([^}]+)\})?", braced):
            names = [n + text + c for n in names for c in (choices or "").split(",")]
        described |= set(names)
    described |= set(re.findall(r"`(digits_\w+)`", README))
    # Cross-entropy with the supplementary's training is a baseline that its tables do not have.
    extra = {"superloss/cifar10_cce", "superloss/cifar100_cce"}
    assert described | extra == {name_of(file) for file in LEAVES}


@pytest.fixture(scope="module")
def published() -> list[PublishedResult]:
    return read_published(CONFIGS / "published")


@pytest.mark.parametrize("entry", MAP, ids=lambda entry: " ".join(entry[:4]))
def test_the_map_leads_from_a_row_to_its_run(
    entry: tuple[str, ...], published: list[PublishedResult]
) -> None:
    """The file with its options is the run that the published row describes, at every rate."""
    paper, table, method, setting, file, options = entry
    wanted = {part for part in setting.split("; ") if part}
    cfg = load_config(CONFIGS / f"{file}.yaml", [])
    part = "vehicles10" if cfg.DATASET.CLASSES else cfg.DATASET.NAME
    rows = [
        number
        for number in published
        if (number.paper, str(number.table), number.method) == (paper, table, method)
        and number.dataset == part
        and wanted <= set(number.setting.split("; "))
    ]
    matched = 0
    for rate in sorted({row.rate for row in rows}):
        words = options.strip(" `").replace("RATE r", f"RATE {rate}").split()
        cfg = load_config(CONFIGS / f"{file}.yaml", words)
        matched += sum(is_row_of(row, cfg) for row in rows if row.rate == rate)
    # A run with label correction reports its last training, which is one column of table 11.
    corrected = [row for row in rows if row.metric == "accuracy_retrained"]
    assert rows
    assert matched == len(corrected or rows)


def test_the_map_has_every_table_that_can_be_run(published: list[PublishedResult]) -> None:
    mapped = {(entry[0], int(entry[1])) for entry in MAP}
    tables = {(number.paper, number.table) for number in published}
    assert tables - mapped == {("gradient_rescaling", 4)}


def test_the_papers_settings_are_those_of_their_texts() -> None:
    cfg = load_config(CONFIGS / "imae" / "cifar10_resnet56_imae.yaml", [])
    solver = cfg.SOLVER
    assert (solver.BASE_LR, solver.MOMENTUM, solver.WEIGHT_DECAY) == (0.1, 0.9, 1e-4)
    assert (solver.BATCH_SIZE, solver.ITERATIONS) == (128, 100_000)
    assert solver.MILESTONES == [32_000, 48_000]
    assert (cfg.DATASET.AUGMENT, cfg.LOSS.T) == ("crop_flip", 8.0)
    cfg = load_config(CONFIGS / "imae" / "cifar100_resnet44_cce.yaml", [])
    assert (cfg.SOLVER.BASE_LR, cfg.SOLVER.WEIGHT_DECAY, cfg.SEED) == (0.1, 5e-4, 123)
    cfg = load_config(CONFIGS / "imae" / "clothing1m_resnet50_imae.yaml", [])
    solver = cfg.SOLVER
    assert (solver.BASE_LR, solver.WEIGHT_DECAY, solver.BATCH_SIZE) == (0.01, 2e-5, 84)
    assert (solver.ITERATIONS, solver.MILESTONES) == (30_000, [10_000, 15_000])
    assert (cfg.DATASET.RESIZE, cfg.DATASET.IMAGE_SIZE) == (256, 227)
    cfg = load_config(CONFIGS / "gradient_rescaling" / "cifar100_resnet44_gr.yaml", [])
    solver = cfg.SOLVER
    assert (solver.BASE_LR, solver.WEIGHT_DECAY, solver.BATCH_SIZE) == (0.1, 1e-4, 128)
    assert solver.MILESTONES == [5_000, 10_000, 15_000, 20_000]
    assert (cfg.LOSS.BETA, cfg.LOSS.GR_LAMBDA) == (8.0, 0.5)
    truncated = {"mnist": 1.0, "utkface": 10.0}
    for name, threshold in truncated.items():
        file = CONFIGS / "superloss" / f"{name}_l2_superloss.yaml"
        assert threshold == load_config(file, []).TRUNCATE

"""The command writes what was asked for, and says what it knows."""

from pathlib import Path

import pytest

from sl_bench.loss_figures import FIGURES
from tools import plot_losses

SIGNATURES = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def test_all_figures_are_written(tmp_path: Path) -> None:
    files = plot_losses.main(tmp_path / "new" / "folder", dpi=40)
    assert [file.name for file in files] == [f"{name}.png" for name in FIGURES]
    for file in files:
        assert file.read_bytes().startswith(SIGNATURES["png"])


def test_one_figure_in_every_format(tmp_path: Path) -> None:
    files = plot_losses.main(tmp_path, figure="imae_weights", formats=("png", "pdf", "svg"))
    assert sorted(tmp_path.iterdir()) == sorted(files)
    for file in files:
        assert file.stem == "imae_weights"
        assert file.read_bytes().startswith(SIGNATURES[file.suffix[1:]])
    assert ">loss (variance of the weight)</text>" in files[2].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"figure": "gr"}, "figure is 'gr', expected one of confidence_aware_losses, "),
        ({"formats": ("png", "bmp")}, "format is 'bmp', expected one of png, pdf, svg"),
    ],
)
def test_unknown_names_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plot_losses.main(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_help_describes_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plot_losses._parse(["--help"])
    printed = capsys.readouterr().out
    for name in FIGURES:
        assert f"    {name} " in printed

"""Draw the papers' figures of their losses: what each loss is, and how much weight it gives.

    python tools/plot_losses.py                                     # all figures, as PNG
    python tools/plot_losses.py --figure gr_weights --format pdf svg

Every value is computed by sl_core, so the figures show what is trained with. The figures:

    confidence_aware_losses  losses that take a confidence, and the size of their gradient
                             (SuperLoss supplementary, figure 1)
    superloss_confidence     SuperLoss and its confidence sigma(l), for several lambda
    imae_weights             weights of CCE, MAE and IMAE (imae.txt, figure 1)
    imae_losses              IMAE's derivative and, as its area, its loss (figure 3)
    imae_temperatures        IMAE's weight for several T (figure 5)
    gr_weights               weights of GR beside other losses (gradient_rescaling.txt, figure 1)
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from sl_bench.figure_style import styled
from sl_bench.loss_figures import FIGURES, draw

FORMATS = ("png", "pdf", "svg")
DPI = 200


def main(
    output: Path, figure: str | None = None, formats: Sequence[str] = ("png",), dpi: int = DPI
) -> list[Path]:
    """Write one figure, or all, in each format; returns the files, ``<output>/<figure>.<format>``.

    Raises:
        ValueError: unknown figure or format, with the known ones.
    """
    unknown = [found for found in formats if found not in FORMATS]
    if unknown:
        raise ValueError(f"format is {unknown[0]!r}, expected one of {', '.join(FORMATS)}")
    files = []
    for name in tqdm(FIGURES if figure is None else (figure,), unit="figure"):
        drawn = draw(name)
        output.mkdir(parents=True, exist_ok=True)
        for ending in formats:
            files.append(output / f"{name}.{ending}")
            with styled():
                drawn.savefig(files[-1], dpi=dpi)
    for file in files:
        print(file)
    return files


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path("output/losses"), help="folder to write"
    )
    parser.add_argument("--figure", metavar="NAME", help="only this one (all)")
    parser.add_argument(
        "--format",
        dest="formats",
        nargs="+",
        default=["png"],
        metavar="FORMAT",
        help=f"one or more of {', '.join(FORMATS)} (png)",
    )
    parser.add_argument("--dpi", type=int, default=DPI, help=f"resolution of a PNG ({DPI})")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main(**vars(_parse()))
    except ValueError as error:
        sys.exit(f"error: {error}")

"""Packaging of the plugins. detectron2 itself is installed by tools/install_detectron2.py."""

from pathlib import Path

from setuptools import find_packages, setup

DETECTION = [
    "fvcore>=0.1.5",
    "pillow>=10",
    "pycocotools>=2.0.8",
    "scikit-learn>=1.4",
    "torchvision>=0.19",
    # detectron2 imports pkg_resources, which setuptools 81 removed.
    "setuptools<81",
]
RETRIEVAL = [
    "fvcore>=0.1.5",
    "pillow>=10",
    "pytorch-metric-learning>=2.8",
    "pyyaml>=6",
    "scikit-learn>=1.4",
    "scipy>=1.11",
    # Safe loading of checkpoints names what it allows, which torch 2.6 began.
    "torch>=2.6",
    "torchvision>=0.21",
    "tqdm>=4.60",
]
BENCH = [
    "fvcore>=0.1.5",
    "matplotlib>=3.8",
    "pillow>=10",
    "pyyaml>=6",
    "scikit-learn>=1.4",
    "torch>=2.6",
    "torchvision>=0.21",
    "tqdm>=4.60",
]
DEV = [
    "hypothesis>=6.100",
    "matplotlib>=3.8",
    "mpmath>=1.3",
    "mypy>=1.11",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "ruff>=0.6",
    "scikit-learn>=1.4",
    "scipy>=1.11",
    "tqdm>=4.60",
]

setup(
    name="sl-plugins",
    version="0.1.0",
    description="Train detectors and image-retrieval networks on partly wrong labels",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["sl_*"]),
    package_data={
        name: ["py.typed"] for name in ("sl_core", "sl_detectron", "sl_retrieval", "sl_bench")
    },
    python_requires=">=3.10",
    install_requires=["numpy>=1.24", "torch>=2.4"],
    extras_require={"detection": DETECTION, "retrieval": RETRIEVAL, "bench": BENCH, "dev": DEV},
)

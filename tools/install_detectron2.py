"""Install detectron2 where it has no package of its own.

The package registry holds the Python sources of detectron2 0.5 under another name, without the
C++ part. Faster R-CNN and RetinaNet need none of that part, so this tool downloads the archive at
a pinned hash, replaces what newer numpy and Pillow have removed, puts an empty module in the place
of the compiled one, and installs the result as the distribution ``detectron2``. A detectron2 that
is already there is left alone, whatever its version.

    python tools/install_detectron2.py                     # patched 0.5 from the package registry
    python tools/install_detectron2.py --source upstream   # main branch, by git
"""

import argparse
import hashlib
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ARCHIVE_NAME = "detectron2-cdo"
ARCHIVE_VERSION = "0.5"
ARCHIVE_SHA256 = "53c9e79e9cc943e80419c588ea44b5479507a8628ed14a4e06bd093e29311b18"
SUMMARY = "detectron2 without its compiled part, patched for current numpy and Pillow"
UPSTREAM = "git+https://github.com/facebookresearch/detectron2.git"

REPLACEMENTS = (
    # numpy 1.24 removed its aliases of the builtin types; np.float32, np.bool_ and so on stay.
    (re.compile(r"\bnp\.(bool|int|float|str|object)\b"), r"\1"),
    # Pillow 10 removed this other name of BILINEAR.
    (re.compile(r"\bImage\.LINEAR\b"), "Image.BILINEAR"),
)

# What detectron2 asks of its compiled part when it describes the environment in the log.
COMPILED_PART = '''"""Stands in for the compiled part, which this installation does not have."""


def get_compiler_version():
    return "none: installed without the compiled part"


def get_cuda_version():
    return "none: installed without the compiled part"


def has_cuda():
    return False
'''

SETUP_PY = """
from setuptools import find_packages, setup

PROJECTS = {
    "detectron2.projects.point_rend": "projects/PointRend/point_rend",
    "detectron2.projects.deeplab": "projects/DeepLab/deeplab",
    "detectron2.projects.panoptic_deeplab": "projects/Panoptic-DeepLab/panoptic_deeplab",
}
setup(
    name="detectron2",
    version="VERSION",
    description="SUMMARY",
    url="https://github.com/facebookresearch/detectron2",
    license="Apache-2.0",
    packages=find_packages(include=["detectron2*"]) + list(PROJECTS),
    package_dir=PROJECTS,
    package_data={"detectron2.model_zoo": ["configs/**/*.yaml", "configs/**/*.py"]},
    install_requires=[
        "Pillow>=7.1",
        "matplotlib",
        "pycocotools>=2.0.2",
        "termcolor>=1.1",
        "yacs>=0.1.6",
        "tabulate",
        "cloudpickle",
        "tqdm>4.29.0",
        "tensorboard",
        "fvcore>=0.1.5,<0.1.6",
        "iopath>=0.1.7,<0.1.10",
        "omegaconf>=2.1",
        "hydra-core>=1.1",
        "setuptools<81",
    ],
)
"""


class InstallError(RuntimeError):
    """Something outside this tool failed; the message says what and what to do."""


def installed_version() -> str | None:
    """Version of the detectron2 that this interpreter would import, None if there is none."""
    try:
        return importlib.metadata.version("detectron2")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (on the path, not installed)" if _importable() else None


def patch_source(text: str) -> str:
    """Replace what newer numpy and Pillow have removed. Patching twice changes nothing more."""
    for pattern, replacement in REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


def verify_archive(archive: Path, expected_sha256: str = ARCHIVE_SHA256) -> None:
    """Raise InstallError unless the file has the pinned hash."""
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != expected_sha256:
        raise InstallError(
            f"{archive.name}: sha256 is {found}, expected {expected_sha256}; nothing was installed"
        )


def prepare_tree(archive: Path, folder: Path) -> Path:
    """Unpack a verified archive below ``folder``, patch it, and return its root."""
    with tarfile.open(archive) as tar:
        # Python before 3.11.4 has no filters; the archive has the pinned hash in any case.
        if hasattr(tarfile, "data_filter"):
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder)
    (root,) = (path for path in folder.iterdir() if path.is_dir())
    for source in root.rglob("*.py"):
        source.write_text(patch_source(source.read_text(encoding="utf-8")), encoding="utf-8")
    (root / "detectron2" / "_C.py").write_text(COMPILED_PART, encoding="utf-8")
    (root / "setup.py").write_text(
        SETUP_PY.replace("VERSION", ARCHIVE_VERSION).replace("SUMMARY", SUMMARY).lstrip(),
        encoding="utf-8",
    )
    (root / "setup.cfg").unlink(missing_ok=True)
    return root


def install_from_registry(constraints: Path | None = None) -> None:
    """Download, verify, patch and install the registry's sources of detectron2 0.5."""
    with tempfile.TemporaryDirectory(prefix="detectron2-") as name:
        folder = Path(name)
        archive = _download(folder)
        verify_archive(archive)
        tree = prepare_tree(archive, folder / "tree")
        _pip("install", "--no-build-isolation", *_constrained(constraints), str(tree))


def install_upstream(constraints: Path | None = None) -> None:
    """Install detectron2's main branch by git; its compiled part is built, which takes minutes."""
    _pip("install", "--upgrade", "--no-build-isolation", *_constrained(constraints), UPSTREAM)


def main(source: str = "registry", constraints: Path | None = None) -> str:
    """Install detectron2 unless there is one, and return the version that is there afterwards.

    Only a build of this tool's own is replaced, when ``source`` is upstream.
    """
    found = installed_version()
    if found is not None and not (source == "upstream" and _is_patched_build()):
        print(f"detectron2 {found} is installed already and is left alone")
        return found
    if source == "upstream":
        install_upstream(constraints)
    else:
        install_from_registry(constraints)
    importlib.invalidate_caches()
    version = installed_version()
    if version is None:
        raise InstallError("pip reported success, but detectron2 cannot be found afterwards")
    print(f"detectron2 {version} installed ({source})")
    return version


def _importable() -> bool:
    return importlib.util.find_spec("detectron2") is not None


def _is_patched_build() -> bool:
    try:
        return importlib.metadata.metadata("detectron2")["Summary"] == SUMMARY
    except importlib.metadata.PackageNotFoundError:
        return False


def _constrained(constraints: Path | None) -> list[str]:
    return [] if constraints is None else ["--constraint", str(constraints)]


def _download(folder: Path) -> Path:
    # With a hash in the requirement pip compares before it unpacks, so that a wrong archive's
    # setup.py, which pip runs to learn the metadata, is never executed.
    requirement = folder / "requirement.txt"
    requirement.write_text(
        f"{ARCHIVE_NAME}=={ARCHIVE_VERSION} --hash=sha256:{ARCHIVE_SHA256}\n", encoding="utf-8"
    )
    options = ("--no-deps", "--no-build-isolation", "--no-binary", ARCHIVE_NAME)
    _pip("download", *options, "--dest", str(folder), "--requirement", str(requirement))
    archives = list(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        raise InstallError(
            f"pip downloaded {[path.name for path in archives]}, expected one .tar.gz of "
            f"{ARCHIVE_NAME} {ARCHIVE_VERSION}"
        )
    return archives[0]


def _pip(command: str, *arguments: str) -> None:
    call = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*call, *arguments], capture_output=True, text=True)
    if done.returncode:
        reason = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise InstallError(
            f"pip {command} {arguments[-1]} failed (exit code {done.returncode}). If this machine "
            f"has no such package, install detectron2 yourself and run this again.\n{reason}"
        )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source",
        choices=("registry", "upstream"),
        default="registry",
        help="registry: patched 0.5 without the compiled part; upstream: main branch by git",
    )
    parser.add_argument("--constraints", type=Path, help="pip constraints file to respect")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = _parse(None)
    try:
        main(options.source, options.constraints)
    except InstallError as error:
        sys.exit(f"install_detectron2: {error}")

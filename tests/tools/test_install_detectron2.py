"""The set-up step for detectron2: what it patches, what it verifies, what it leaves alone."""

import importlib.metadata
import io
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from tools import install_detectron2 as tool

SOURCE = """
import numpy as np
from PIL import Image
a = np.zeros(3, dtype=np.bool).astype(np.int) + np.float(1) + np.str("x")
b = np.zeros(3, np.float32).astype(np.bool_).astype(np.int64) + np.floating + np.interp
def f(mode=Image.LINEAR, other=Image.NEAREST): ...
"""
PATCHED = """
import numpy as np
from PIL import Image
a = np.zeros(3, dtype=bool).astype(int) + float(1) + str("x")
b = np.zeros(3, np.float32).astype(np.bool_).astype(np.int64) + np.floating + np.interp
def f(mode=Image.BILINEAR, other=Image.NEAREST): ...
"""


def make_archive(folder: Path, files: dict[str, str]) -> Path:
    """A small archive of the same shape as the registry's."""
    archive = folder / "detectron2_cdo-0.5.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"detectron2_cdo-0.5/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive


def only_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip see nothing but one folder."""
    for variable in list(os.environ):
        if variable.startswith("PIP_"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_patch_replaces_only_what_was_removed_and_is_idempotent() -> None:
    assert tool.patch_source(SOURCE) == PATCHED
    assert tool.patch_source(PATCHED) == PATCHED


def test_the_installed_one_is_a_distribution_and_is_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    version = importlib.metadata.version("detectron2")
    assert tool.main() == version
    assert f"detectron2 {version} is installed already and is left alone" in capsys.readouterr().out


def test_the_installed_one_imports_and_builds_a_detector() -> None:
    from detectron2.config import get_cfg
    from detectron2.model_zoo import get_config_file
    from detectron2.modeling import build_model

    cfg = get_cfg()
    cfg.merge_from_file(get_config_file("PascalVOC-Detection/faster_rcnn_R_50_FPN.yaml"))
    cfg.MODEL.DEVICE = "cpu"
    assert build_model(cfg).roi_heads.num_classes == 20


def test_installs_as_a_distribution_that_pip_shows_and_removes(tmp_path: Path) -> None:
    archive = make_archive(
        tmp_path,
        {
            "setup.py": "raise SystemExit('the original set-up must not run')",
            "setup.cfg": "[metadata]\nname = other\n",
            "detectron2/__init__.py": "",
            "detectron2/code.py": SOURCE,
            "detectron2/model_zoo/__init__.py": "",
            "detectron2/model_zoo/configs/voc/a.yaml": "A: 1\n",
            "projects/PointRend/point_rend/__init__.py": "",
            "projects/DeepLab/deeplab/__init__.py": "",
            "projects/Panoptic-DeepLab/panoptic_deeplab/__init__.py": "",
        },
    )
    tree = tool.prepare_tree(archive, tmp_path / "tree")
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(tree)]
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *build], check=True)
    venv.create(tmp_path / "env", with_pip=True)
    pip = [str(tmp_path / "env" / "bin" / "python"), "-m", "pip"]
    (wheel,) = tmp_path.glob("detectron2-0.5-*.whl")
    subprocess.run([*pip, "--quiet", "install", "--no-deps", str(wheel)], check=True)
    shown = subprocess.run([*pip, "show", "detectron2"], check=True, capture_output=True, text=True)
    assert "Version: 0.5" in shown.stdout
    (package,) = (tmp_path / "env").glob("lib/python*/site-packages/detectron2")
    assert (package / "code.py").read_text() == PATCHED
    assert (package / "_C.py").exists()
    assert (package / "model_zoo/configs/voc/a.yaml").exists()
    assert (package / "projects/point_rend/__init__.py").exists()
    subprocess.run([*pip, "--quiet", "uninstall", "--yes", "detectron2"], check=True)
    assert not package.exists()


def test_an_archive_with_another_hash_is_refused(tmp_path: Path) -> None:
    archive = make_archive(tmp_path, {"setup.py": ""})
    with pytest.raises(
        tool.InstallError, match=r"detectron2_cdo-0\.5\.tar\.gz: sha256 is \w+, exp"
    ):
        tool.verify_archive(archive)


def test_nothing_of_a_forged_archive_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip runs an archive's setup.py to learn its name: it must see the wrong hash before."""
    trace = tmp_path / "executed"
    make_archive(
        tmp_path,
        {"setup.py": f"open({str(trace)!r}, 'w')", "PKG-INFO": "Name: detectron2-cdo\n"},
    )
    only_from(tmp_path, monkeypatch)
    with pytest.raises(tool.InstallError, match="THESE PACKAGES DO NOT MATCH THE HASHES"):
        tool.install_from_registry()
    assert not trace.exists()


def test_a_failed_download_gives_one_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_from(tmp_path, monkeypatch)
    with pytest.raises(tool.InstallError, match="install detectron2 yourself") as error:
        tool.install_from_registry()
    assert "pip download" in str(error.value)
    assert "detectron2-cdo==0.5" in str(error.value)

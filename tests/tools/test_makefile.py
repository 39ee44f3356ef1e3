"""The environment that `make` builds: once, again when inputs change, and after an interruption.

A small project with the real Makefile, real venv and real pip; only what is installed is small.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALLER = """
import pathlib
with pathlib.Path("installs.log").open("a") as log:
    log.write("install\\n")
if pathlib.Path("fail").exists():
    raise SystemExit("killed in the middle")
"""


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(ROOT / "Makefile", folder)
        (folder / "setup.py").write_text("from setuptools import setup\nsetup(name='small')\n")
        (folder / "constraints.txt").write_text("")
        (folder / "tools").mkdir()
        (folder / "tools" / "install_detectron2.py").write_text(INSTALLER)

    def make(self, *arguments: str, succeeds: bool = True) -> str:
        call = ["make", f"PYTHON={sys.executable}", "VENV=.venv", *arguments]
        # A make that runs this test hands its own settings down, VENV among them.
        inherited = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"}
        environment = {name: v for name, v in os.environ.items() if name not in inherited}
        done = subprocess.run(
            call, cwd=self.folder, capture_output=True, text=True, env=environment
        )
        assert (done.returncode == 0) == succeeds, done.stdout + done.stderr
        return done.stdout

    def touch(self, name: str) -> None:
        later = (self.folder / ".venv" / ".sl-installed-registry").stat().st_mtime + 10
        os.utime(self.folder / name, (later, later))

    @property
    def installs(self) -> int:
        return len((self.folder / "installs.log").read_text().splitlines())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_environment_is_built_once_and_again_when_its_inputs_change(project: Project) -> None:
    project.make("venv")
    project.make("venv")
    assert project.installs == 1
    for number, name in enumerate(("constraints.txt", "setup.py"), start=2):
        project.touch(name)
        project.make("venv")
        assert project.installs == number
        os.utime(project.folder / name, (0, 0))


def test_another_detectron2_is_asked_for_in_an_existing_environment(project: Project) -> None:
    project.make("venv")
    project.make("venv", "DETECTRON2=upstream")
    assert project.installs == 2


def test_an_interrupted_install_is_repaired_by_the_next_call(project: Project) -> None:
    (project.folder / "fail").touch()
    project.make("venv", succeeds=False)
    # What a kill leaves behind: pip's own files are incomplete, yet look installed.
    for package in (project.folder / ".venv").glob("lib/python*/site-packages/pip"):
        shutil.rmtree(package)
    (project.folder / "fail").unlink()
    assert "was interrupted" in project.make("venv")
    subprocess.run([project.folder / ".venv/bin/python", "-m", "pip", "--version"], check=True)


def test_an_environment_of_the_user_is_used_and_never_deleted(project: Project) -> None:
    own = project.folder / "own"
    venv.create(own, with_pip=True)
    (own / "precious").touch()
    (project.folder / "fail").touch()
    project.make("venv", f"VENV={own}", succeeds=False)
    (project.folder / "fail").unlink()
    project.make("venv", f"VENV={own}")
    project.make("clean", f"VENV={own}")
    assert (own / "precious").exists()
    assert not (project.folder / ".venv").exists()

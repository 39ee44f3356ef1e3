"""The arrows between packages: tools -> plugins -> sl_core -> torch, never sideways or back."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "sl_core": {"sl_core"},
    "sl_detectron": {"sl_core", "sl_detectron"},
    "sl_retrieval": {"sl_core", "sl_retrieval"},
    "sl_bench": {"sl_core", "sl_bench"},
}
CORE_NEEDS = {"torch", "numpy"}


def imported_packages(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("package", sorted(path.name for path in ROOT.glob("sl_*/")))
def test_packages_import_only_what_lies_below_them(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for file in files:
        ours = {name for name in imported_packages(file) if name.startswith("sl_")}
        assert ours <= ALLOWED[package], file


def test_core_needs_nothing_but_torch_and_numpy() -> None:
    for file in (ROOT / "sl_core").rglob("*.py"):
        foreign = imported_packages(file) - set(sys.stdlib_module_names) - {"sl_core"}
        assert foreign <= CORE_NEEDS, file


def test_core_imports_without_detectron2() -> None:
    code = (
        "import sys; sys.modules['detectron2'] = None; import sl_core; "
        "assert not any(name.startswith(('scipy', 'fvcore')) for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)

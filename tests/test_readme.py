"""The README is true: its code runs, its links and commands exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_examples_run() -> None:
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert examples
    for example in examples:
        names: dict[str, object] = {}
        exec(compile(example, "README.md", "exec"), names)
        assert names["checkpoint"]


def test_local_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)", README)
    local = [target for target in targets if not target.startswith("http")]
    assert local
    for target in local:
        assert (ROOT / target).exists(), target


def test_every_make_target_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_file_named_exists() -> None:
    for name in re.findall(r"`((?:tools|configs|benchmarks|docs)/[\w/.-]+)`", README):
        assert (ROOT / name).exists(), name

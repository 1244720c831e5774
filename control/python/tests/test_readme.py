"""Tests that the examples of both READMEs run unchanged and print the output shown there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import FOLDER, ROOT, Demo

BLOCK = re.compile(
    r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


def blocks() -> list[object]:
    found: list[object] = []
    for path in (FOLDER / "README.md", ROOT / "README.md"):
        text = path.read_text("utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start(2))
            where = f"{path.relative_to(ROOT)}:{line}"
            found.append(pytest.param(*match.groups(), id=where))
    return found


@pytest.mark.parametrize(("code", "wanted"), blocks())
def test_an_example(code: str, wanted: str | None, idle: Demo, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code, "utf-8")
    environment = {**os.environ, "LATTICE_CONTEXT": str(idle.context_file)}
    ran = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    if wanted is not None:
        assert ran.stdout == wanted


def test_both_have_examples() -> None:
    assert len(blocks()) >= 8

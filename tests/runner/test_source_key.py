"""The key of the source: it follows what can change a number, and nothing else."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import oddnode
from oddnode.runner.source_key import hashed_modules, source_key

PACKAGE = Path(oddnode.__file__).parent


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package, to change things in."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "oddnode", ignore=shutil.ignore_patterns("__pycache__")))


def changed_key(root: Path) -> str:
    source_key.cache_clear()
    return source_key(root=root)


def test_a_copy_has_the_key_of_the_original(copied: Path) -> None:
    assert changed_key(copied) == source_key()


def test_comments_docstrings_and_formatting_do_not_count(copied: Path) -> None:
    before = changed_key(copied)
    for module, path in hashed_modules(copied).items():
        source = path.read_text()
        assert source.startswith(('"""', 'r"""')), f"{module} has no docstring"
        path.write_text('"""Another docstring."""\n# a comment\n' + source.split('"""', 2)[2] + "\n\n\n")
    assert changed_key(copied) == before


def test_the_command_line_does_not_count(copied: Path) -> None:
    before = changed_key(copied)
    files = [path for path in copied.rglob("*.py") if path.stem.startswith("cli") or "cli" in path.parts]
    assert files
    for path in files:
        path.write_text(path.read_text() + "\nANSWER = 42\n")
    assert changed_key(copied) == before


def test_a_constant_in_a_module_counts(copied: Path) -> None:
    keys = {changed_key(copied)}
    paths = [path for _, path in sorted(hashed_modules(copied).items())][::30]
    for path in paths:
        path.write_text(path.read_text() + "\nANSWER = 42\n")
        keys.add(changed_key(copied))
    assert len(keys) == len(paths) + 1


def test_a_changed_number_inside_a_function_counts(copied: Path) -> None:
    before = changed_key(copied)
    [path] = [path for module, path in hashed_modules(copied).items() if module.endswith(".metrics")]
    assert "100.0" in path.read_text() or "0.95" in path.read_text()
    path.write_text(path.read_text().replace("0.95", "0.94", 1))
    assert changed_key(copied) != before


def test_the_source_of_a_plugin_counts(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("WEIGHT = 1.0\n")
    first = source_key((plugin,))
    assert first != source_key()
    plugin.write_text('"""Documented."""\nWEIGHT = 1.0  # as before\n')
    source_key.cache_clear()
    assert source_key((plugin,)) == first
    plugin.write_text("WEIGHT = 2.0\n")
    source_key.cache_clear()
    assert source_key((plugin,)) != first


def test_everything_that_a_training_imports_is_covered() -> None:
    """Against Python itself: a training in a process of its own imports nothing that the key does not know."""
    code = (
        "import sys\n"
        "from oddnode.runner.execute import execute\n"
        "from oddnode.runner.work import Training\n"
        "for protocol in ('clean', 'published'):\n"
        "    execute(Training('digits/label', protocol, 'gcn', 0, ('gnnsafe',), (), 2), device='cpu')\n"
        "print(*sorted(m for m in sys.modules if m.startswith('oddnode.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert len(imported) > 20
    assert imported - set(hashed_modules()) == {"oddnode._version"}


def test_the_key_is_the_same_under_other_versions_of_python() -> None:
    from oddnode.runner.source_key import _canonical

    text = "".join(_canonical(ast.parse("def f(x=1): return x")))
    assert text == (
        "(Module body=[(FunctionDef name='f' args=(arguments args=[(arg arg='x')] defaults=[(Constant value=1)])"
        " body=[(Return value=(Name id='x'))])])"
    )

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


def test_comments_docstrings_formatting_and_the_command_line_do_not_count(copied: Path) -> None:
    assert changed_key(copied) == source_key()
    for module, path in hashed_modules(copied).items():
        source = path.read_text()
        assert source.startswith(('"""', 'r"""')), f"{module} has no docstring"
        path.write_text('"""Another docstring."""\n# a comment\n' + source.split('"""', 2)[2] + "\n\n\n")
    files = list((copied / "cli").glob("*.py"))
    assert files
    for path in files:
        path.write_text(path.read_text() + "\nANSWER = 42\n")
    assert changed_key(copied) == source_key(root=PACKAGE)


def test_numbers_count(copied: Path) -> None:
    keys = {changed_key(copied)}
    paths = [path for _, path in sorted(hashed_modules(copied).items())][::30]
    for path in paths:
        path.write_text(path.read_text() + "\nANSWER = 42\n")
        keys.add(changed_key(copied))
    assert len(keys) == len(paths) + 1
    [path] = [path for module, path in hashed_modules(copied).items() if module.endswith(".metrics")]
    assert "0.95" in path.read_text()
    path.write_text(path.read_text().replace("0.95", "0.94", 1))  # inside a function
    assert changed_key(copied) not in keys


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
        "from oddnode.runner.execute import Setup, execute_group\n"
        "from oddnode.runner.work import Group, Training\n"
        "for protocol in ('clean', 'published'):\n"
        "    training = Training('digits/label', protocol, 'gcn', 0, ('gnnsafe',), (), 2)\n"
        "    list(execute_group(Group(((training,),)), Setup('cpu', node_scores=True)))\n"
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

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import oddnode
from oddnode._utils.lazy import LazyModule, lazy_names

SOURCE = Path(oddnode.__file__).parent
LAZY = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if "lazy_names" in path.read_text())


def test_a_name_is_looked_up_in_its_module() -> None:
    load, names = lazy_names(__name__, {"fractions": ["Fraction"], "decimal": ["Decimal"]})
    assert load("Fraction")(2, 4) == load("Fraction")(1, 2)
    assert {"Fraction", "Decimal", "SOURCE"} <= set(names())
    with pytest.raises(AttributeError, match=rf"module '{__name__}' has no attribute 'Frction'"):
        load("Frction")


def test_a_module_is_imported_when_a_name_of_it_is_used() -> None:
    code = (
        "import sys; from oddnode._utils.lazy import LazyModule\n"
        "module = LazyModule('wave'); assert 'wave' not in sys.modules\n"
        "module.Error; assert 'wave' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'flor'"):
        _ = LazyModule("math").flor


def test_there_are_lazy_packages() -> None:
    assert {"detector", "nn", "protocols", "tables", "tasks"} <= set(LAZY)


@pytest.mark.parametrize("package", LAZY)
def test_python_and_type_checkers_are_told_the_same(package: str) -> None:
    """The names under TYPE_CHECKING, those for Python, and ``__all__``."""
    tree = ast.parse((SOURCE / package / "__init__.py").read_text(encoding="utf-8"))
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    for_checkers = {node.module: [alias.name for alias in node.names] for node in imports}
    [call] = [node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    assert ast.literal_eval(call.args[1]) == for_checkers
    module = import_module(f"oddnode.{package}")
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert {name for names in for_checkers.values() for name in names} <= set(module.__all__) <= set(dir(module))

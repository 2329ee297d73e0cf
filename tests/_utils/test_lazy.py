from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import oddnode
from oddnode._utils.lazy import LazyModule

SOURCE = Path(oddnode.__file__).parent
IS_LAZY = [path.parent.name for path in SOURCE.glob("*/__init__.py") if "exports(" in path.read_text()]
LAZY = ["oddnode", *sorted(f"oddnode.{package}" for package in IS_LAZY)]
assert {"detector", "nn", "protocols", "tables", "tasks"} <= set(IS_LAZY)


@pytest.mark.parametrize("package", LAZY)
def test_every_exported_name_can_be_imported(package: str) -> None:
    module = import_module(package)
    assert len(module.__all__) > 3
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert dir(module) == module.__all__
    with pytest.raises(AttributeError, match=rf"module '{package}' has no attribute 'Detectr'"):
        _ = module.Detectr


def test_a_module_is_imported_when_a_name_of_it_is_used() -> None:
    code = (
        "import sys; from oddnode._utils.lazy import LazyModule\n"
        "module = LazyModule('wave'); assert 'wave' not in sys.modules\n"
        "module.Error; assert 'wave' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'flor'"):
        _ = LazyModule("math").flor

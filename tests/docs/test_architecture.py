"""The picture of the architecture is made from the import contract, and the page names every package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_architecture", ROOT / "docs" / "draw_architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_up_to_date(drawing: ModuleType) -> None:
    assert drawing.PICTURE.read_text(encoding="utf-8") == drawing.draw(), "run: python docs/draw_architecture.py"


def test_every_package_stands_in_the_contract_and_on_the_page(drawing: ModuleType) -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "oddnode").glob("*/__init__.py")}
    assert {name for row in drawing.layers() for name in row} == packages
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [name for name in sorted(packages) if f"`{name}`" not in page] == []

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oddnode import MaxSoftmax
from oddnode._utils import plugins
from oddnode._utils.plugins import PluginError, file_plugins, load_plugins, plugin_files, plugin_of
from oddnode.detector import RECIPES

METHOD = """
from __future__ import annotations
from dataclasses import dataclass
from oddnode import CrossEntropy, MaxSoftmax, Recipe, register_method

@dataclass
class Certainty(MaxSoftmax):
    scale: float = 1.0

def build(scale: float = 1.0):
    return CrossEntropy(), Certainty(scale)

register_method(Recipe("certainty", build, "a test"))
"""


@pytest.fixture(autouse=True)
def nothing_stays(own_registries: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test loads and registers is gone after it."""
    monkeypatch.setattr(plugins, "_loaded", {})
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        if name.startswith(("oddnode_plugin_", "entry_")):
            del sys.modules[name]


def write(path: Path, text: str = METHOD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def install(folder: Path, module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that is installed in a folder, as pip leaves it: the code, and a dist-info folder beside it."""
    write(folder / f"{name}-1.0.dist-info" / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    write(folder / f"{name}-1.0.dist-info" / "entry_points.txt", f"[oddnode.plugins]\n{name} = {module}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_file_adds_a_method_and_is_known_as_its_origin(tmp_path: Path) -> None:
    file = write(tmp_path / "my-methods.py")
    load_plugins([file])
    _, scorer = RECIPES["certainty"].build(scale=2.0)
    assert type(scorer).__name__ == "Certainty"
    assert file_plugins() == plugin_files() == (file.resolve(),)
    assert plugin_of(type(scorer)) == "my-methods"
    assert plugin_of(RECIPES["certainty"].build) == "my-methods"
    assert plugin_of(MaxSoftmax) is None


def test_the_same_file_twice_is_harmless_by_whatever_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "mine.py")
    load_plugins([file, file])
    recipe = RECIPES["certainty"]
    monkeypatch.chdir(tmp_path)
    load_plugins([Path("mine.py")])
    (tmp_path / "link.py").symlink_to(file)
    load_plugins(["link.py"])
    assert RECIPES["certainty"] is recipe
    assert file_plugins() == (file.resolve(),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ndef f(:\n", r"plugin .*broken.py, line 2: SyntaxError: "),
        ("x = 1\n\nx.y\n", r"plugin .*broken.py, line 3: AttributeError: 'int' object has no attribute 'y'"),
        ("import nowhere_at_all\n", r"plugin .*broken.py, line 1: ModuleNotFoundError: No module named 'nowhere"),
        ("raise SystemExit(0)\n", r"plugin .*broken.py, line 1: SystemExit: 0"),
        ("def f():\n    raise ValueError('one\\ntwo')\n\nf()\n", r"plugin .*broken.py, line 2: ValueError: one$"),
        (
            METHOD.replace("certainty", "msp"),
            r"plugin .*broken.py, line 13: ValueError: there is a method named 'msp' already; choose another name",
        ),
        (METHOD.replace("scale: float = 1.0):", "scale):"), r"line 13: ValueError: .* has no default for scale"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "broken.py", text)
    with pytest.raises(PluginError, match=message) as caught:
        load_plugins([file])
    assert "\n" not in str(caught.value)
    assert plugin_files() == ()
    assert "oddnode_plugin_broken" not in sys.modules


def test_a_plugin_that_fails_late_leaves_nothing_and_loads_once_mended(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", METHOD + "\n1 / 0\n")
    with pytest.raises(PluginError, match=r"line 15: ZeroDivisionError"):
        load_plugins([file])
    assert "certainty" not in RECIPES
    load_plugins([write(file)])
    assert "certainty" in RECIPES


def test_files_that_are_not_there_and_files_of_the_same_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"plugin .*nowhere.py does not exist; expected a file that registers"):
        load_plugins([tmp_path / "nowhere.py"])
    with pytest.raises(PluginError, match=r"is not a Python file \(.py\)"):
        load_plugins([tmp_path])
    load_plugins([write(tmp_path / "a" / "mine.py")])
    with pytest.raises(PluginError, match=r"a plugin named 'mine' is loaded already, from .*a/mine.py; rename one"):
        load_plugins([write(tmp_path / "b" / "mine.py", "")])


def test_an_entry_point_names_a_module_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "entry_package" / "__init__.py", "")
    write(tmp_path / "entry_package" / "scorers.py")
    write(tmp_path / "entry_package" / "adds.py", "import entry_package.scorers\n")
    install(tmp_path, "entry_package.adds", "certain", monkeypatch)
    load_plugins()
    load_plugins()
    _, scorer = RECIPES["certainty"].build()
    assert plugin_of(type(scorer)) == "certain"
    assert [path.name for path in plugin_files()] == ["__init__.py", "adds.py", "scorers.py"]
    assert file_plugins() == ()  # another process finds the entry point itself


def test_a_broken_entry_point_is_named_with_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "entry_broken.py", "x = 1\nx.y\n")
    install(tmp_path, "entry_broken", "faulty", monkeypatch)
    with pytest.raises(
        PluginError, match=r"plugin 'faulty' \(entry_broken of faulty\), .*entry_broken.py, line 2: AttributeError"
    ):
        load_plugins()

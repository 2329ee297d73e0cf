"""Shared graphs and the real data, which tests use where it is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# One thread, also in the processes that tests start: their tensors are small, and threads would wait for each other.
# OpenMP reads this when torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from hypothesis import settings
from torch_geometric.data import Data

from oddnode._utils import devices
from oddnode._utils.registry import Registry

torch.set_num_threads(1)  # in case a plugin of pytest imported torch earlier

if sys.platform != "linux":  # these kill processes, limit their memory or read /proc
    collect_ignore_glob = [
        "_utils/*",
        "detector/test_model_folder.py",
        "graph/test_training_data.py",
        "large/test_ranks.py",
        "paper/test_run.py",
        "paper/test_store.py",
        "runner/test_processes.py",
        "soak/*",
        "tables/test_edges.py",
        "tables/test_formats.py",
    ]

settings.register_profile("oddnode", max_examples=30, deadline=None)
settings.load_profile("oddnode")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let two workers begin with the long tests: each gets one half of the list, and steals from the end of another.

    The tests of the paper's command share what they prepare, so that they stay with one worker.
    """
    paper = [item for item in items if item.nodeid.startswith("tests/paper/")]
    others = [item for item in items if not item.nodeid.startswith("tests/paper/")]
    others.sort(key=lambda item: not (item.get_closest_marker("slow") or item.nodeid.startswith("tests/soak/")))
    rest = max(len(items) // 2 - len(paper), 0)
    items[:] = paper + others[len(others) - rest :] + others[: len(others) - rest]


Completed = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory with the public data sets; without it the tests that need it are skipped, loudly."""
    named = os.environ.get("ODDNODE_DATA")
    if not named:
        pytest.skip("REAL DATA NOT TESTED: set ODDNODE_DATA to a folder with planetoid/, twitch/, amazon/, coauthor/")
    return Path(named)


@pytest.fixture(autouse=True, scope="session")
def auto_is_the_cpu() -> Iterator[None]:
    """Tests give the same numbers on every machine: those that need a GPU ask for it by name, or pretend to have it."""
    is_available, device_type = torch.cuda.is_available, devices.device_type

    def type_here(device: str) -> str:
        return "cpu" if device == "auto" and torch.cuda.is_available is is_available else device_type(device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "device_type", type_here)
        yield


@pytest.fixture
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test registers is forgotten after it."""
    for registry in Registry._every:
        monkeypatch.setattr(registry, "_items", dict(registry._items))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Completed]:
    """The command line in this process, which spares the seconds that a new one takes to import torch.

    A test says so if a command is to fail.
    """
    from oddnode.cli import main

    def run(*arguments: str, fails: bool = False) -> Completed:
        monkeypatch.setattr(sys, "argv", ["oddnode", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        shown = capsys.readouterr()
        code = stop.value.code if isinstance(stop.value.code, int) else 0
        assert (code == 1) if fails else (code == 0), shown.err
        return subprocess.CompletedProcess(arguments, code, shown.out, shown.err)

    return run


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and a source distribution of this tree."""
    pytest.importorskip("build", reason="PACKAGES NOT TESTED: install build")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def two_groups() -> Data:
    """Sixty nodes in three plainly different classes; 8 labelled and 4 validation nodes each."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(3).repeat_interleave(20)
    x = torch.nn.functional.one_hot(y, 6).float() + 0.1 * torch.randn(60, 6, generator=generator)
    source = torch.arange(60).repeat_interleave(4)
    target = (source // 20) * 20 + torch.randint(20, (240,), generator=generator)
    edges = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    place = torch.arange(60) % 20
    return Data(
        x=x,
        edge_index=edges,
        y=y,
        train_mask=place < 8,
        val_mask=(place >= 8) & (place < 12),
        test_mask=place >= 12,
    )

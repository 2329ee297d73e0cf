from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch

from oddnode._utils import memory
from oddnode.large import arrays, buffers, ranks
from oddnode.large.heartbeat import Heartbeat
from oddnode.large.product import column_groups
from oddnode.large.ranks import Ranks
from oddnode.large.torchrun import JoinedRanks, MemoryOfRanks

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**33


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file system of control groups without any."""
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        (None, {}, PHYSICAL),
        ("0::/\n", {}, PHYSICAL),  # the machine is the limit; otherwise the smallest of all groups around the process
        ("0::/j/m\n", {"j/m/memory.max": "max\n", "j/memory.max": "1000\n", "memory.max": "3000\n"}, 1000),
        (  # version 1
            "7:cpu,cpuacct:/c\n5:memory:/jobs\n",
            {"memory/jobs/memory.limit_in_bytes": "2000\n", "cpu/c/memory.limit_in_bytes": "5\n"},
            2000,
        ),
    ],
)
def test_control_groups_limit_the_memory(groups: Path, own: str | None, limits: dict[str, str], expected: int) -> None:
    write(groups, own, limits)
    assert ranks.memory_limit() == expected


def write(groups: Path, own: str | None, limits: dict[str, str]) -> None:
    if own is not None:
        (groups / "own").write_text(own)
    for place, text in limits.items():
        path = groups / "cgroup" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_ranks_on_one_machine_share_a_quarter(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(groups, "0::/\n", {"memory.max": "8000000\n"})
    assert MemoryOfRanks.of_machine() == (8_000_000, 2_000_000, 2_000_000)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert MemoryOfRanks.of_machine() == (8_000_000, 2_000_000, 500_000)
    assert Ranks().memory_share == Ranks().own_memory_share == 2_000_000


def test_large_results_are_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_LARGEST_IN_MEMORY", 100)
    small, large = (buffers.scratch_buffer(tmp_path, (size, 2), torch.float32) for size in (10, 100))
    assert [arrays.is_in_file(each) for each in (small, large, large[10:20].t())] == [False, True, True]
    if os.name == "posix":
        assert not list(tmp_path.iterdir())  # the file has no name
    place = large.data_ptr()
    del large
    gc.collect()
    assert place not in arrays._in_files


@pytest.mark.parametrize(("limit", "in_file"), [(64 * 800, [False, False]), (64 * 799, [False, True])])
def test_with_little_memory_smaller_results_are_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, in_file: list[bool]
) -> None:
    monkeypatch.setattr(ranks, "memory_limit", lambda: limit)
    found = [buffers.scratch_buffer(tmp_path, (size, 2), torch.float32) for size in (99, 100)]
    assert [arrays.is_in_file(each) for each in found] == in_file


def test_ranks_agree_on_the_columns_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.zeros(10, 8)
    monkeypatch.setattr(ranks, "_active", Ranks())
    monkeypatch.setattr(ranks, "memory_share", lambda: 10 * 4 * 3)
    assert [columns.stop for columns in column_groups(values)] == [3, 6, 8]
    least = MemoryOfRanks(limit=0, share=10 * 4 * 7, own_share=10 * 4 * 5)  # what the smallest of them has
    several = JoinedRanks(0, 2, Heartbeat.__new__(Heartbeat), least)
    monkeypatch.setattr(ranks, "_active", several)
    assert [columns.stop for columns in column_groups(values)] == [4, 8]

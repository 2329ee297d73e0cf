from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest
import torch

from oddnode.large import arrays, memory

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**33


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file system of control groups without any."""
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return tmp_path


def limit(groups: Path, place: str, text: str) -> None:
    path = groups / "cgroup" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_the_machine_is_the_limit(groups: Path) -> None:
    assert memory.memory_limit() == PHYSICAL
    (groups / "own").write_text("0::/\n")
    assert memory.memory_limit() == PHYSICAL


def test_the_smallest_limit_of_all_groups_around_the_process_counts(groups: Path) -> None:
    (groups / "own").write_text("0::/jobs/mine\n")
    limit(groups, "jobs/mine/memory.max", "max\n")
    limit(groups, "jobs/memory.max", "1000000\n")
    limit(groups, "memory.max", "3000000\n")
    assert memory.memory_limit() == 1_000_000


def test_groups_of_version_1_are_read(groups: Path) -> None:
    (groups / "own").write_text("7:cpu,cpuacct:/c\n5:memory:/jobs\n")
    limit(groups, "memory/jobs/memory.limit_in_bytes", "2000000\n")
    limit(groups, "cpu/c/memory.limit_in_bytes", "5\n")
    assert memory.memory_limit() == 2_000_000


def test_ranks_on_one_machine_share_a_quarter(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (groups / "own").write_text("0::/\n")
    limit(groups, "memory.max", "8000000\n")
    assert memory.memory_share() == 2_000_000
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert memory.memory_share() == 500_000


def test_large_results_are_in_files_that_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_LARGEST_IN_MEMORY", 100)
    small, large = (arrays.scratch(tmp_path, (size, 2), torch.float32) for size in (10, 100))
    assert [arrays.is_in_file(each) for each in (small, large)] == [False, True]
    assert not list(tmp_path.iterdir())  # the file has no name
    part, place = large[10:20], large.data_ptr()
    del large
    gc.collect()
    other = arrays.scratch(tmp_path, (200,), torch.float32)
    assert other.data_ptr() != place  # a part of it is in use
    assert arrays.is_in_file(part)
    del part
    gc.collect()
    assert place not in arrays._in_files
    again = arrays.scratch(tmp_path, (400,), torch.int16)
    assert again.data_ptr() == place
    assert again.shape == (400,)
    assert arrays.is_in_file(again)


def test_a_full_disk_gives_up_files_that_are_not_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_LARGEST_IN_MEMORY", 100)
    monkeypatch.setattr(arrays._free_files, "_free", [])
    for size in (100, 200, 300, 400, 500):
        arrays.scratch(tmp_path, (size,), torch.float32)
        gc.collect()
    assert [len(file) for _, file in arrays._free_files._free] == [800, 1200, 1600, 2000]
    real = arrays.reserve

    def full(descriptor: int, num_bytes: int) -> None:
        if arrays._free_files._free:
            raise OSError(errno.ENOSPC, "no space left")
        real(descriptor, num_bytes)

    monkeypatch.setattr(arrays, "reserve", full)
    assert arrays.is_in_file(arrays.scratch(tmp_path, (700,), torch.float32))

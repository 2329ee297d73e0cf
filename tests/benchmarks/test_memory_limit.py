"""Commands under a memory limit: real processes in a real cgroup, where this machine lets us make one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import memory_limit
import pytest
from memory_limit import MemoryGroup, NoMemoryGroup, forget, num_bytes, run

MIB = 1 << 20
LIMIT = 128 * MIB

ALLOCATE = "import sys; data = bytearray(int(sys.argv[1])); data[::4096] = b'x' * len(data[::4096])"
# Touches every page of a mapped file and prints a sum that shows that it did.
MAP = """
import mmap, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
    print(sum(view[place] for place in range(0, len(view), 4096)))
"""


@pytest.fixture
def cgroups() -> None:
    try:
        MemoryGroup(LIMIT).remove()
    except NoMemoryGroup as error:
        pytest.skip(f"MEMORY LIMIT NOT TESTED: {error}")


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


@pytest.mark.usefixtures("cgroups")
def test_a_process_that_allocates_more_than_the_limit_is_killed_and_reported() -> None:
    usage = run(python(ALLOCATE, 3 * LIMIT), LIMIT)
    assert usage.status == -signal.SIGKILL
    assert usage.out_of_memory
    assert usage.limit == LIMIT
    assert 0.5 * LIMIT < usage.peak_total <= LIMIT
    assert "out of memory" in str(usage)


@pytest.mark.usefixtures("cgroups")
def test_a_process_that_maps_a_file_larger_than_the_limit_survives(tmp_path: Path) -> None:
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True).stdout.strip() == b"tmpfs":
        pytest.skip("the temporary folder is in memory, not on a disk")
    file, size = tmp_path / "large", 3 * LIMIT
    file.write_bytes(b"\x01" * size)
    forget([tmp_path])
    with (tmp_path / "said").open("w") as said:
        usage = run(python(MAP, file), LIMIT, stdout=said)
    assert (usage.status, usage.out_of_memory) == (0, False)
    assert int((tmp_path / "said").read_text()) == size // 4096
    assert usage.bytes_read is not None
    assert usage.bytes_read >= size
    assert usage.peak_total == pytest.approx(LIMIT, rel=0.1)  # the cache fills the group, and no more
    assert usage.peak_anonymous < LIMIT / 2


@pytest.mark.usefixtures("cgroups")
def test_anonymous_memory_and_written_bytes_are_counted_also_those_of_children(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]], check=True)"
    inner = f"{ALLOCATE}; import os, time; file = open(sys.argv[2], 'wb'); file.write(data); file.flush(); "
    inner += "os.fsync(file.fileno()); time.sleep(0.2)"
    usage = run(python(code, inner, 48 * MIB, tmp_path / "written"), LIMIT)
    assert usage.status == 0
    assert 48 * MIB <= usage.peak_anonymous < 80 * MIB
    assert usage.bytes_written is not None
    assert usage.bytes_written >= 48 * MIB
    assert usage.cpu_seconds > 0
    assert usage.seconds > 0.2


@pytest.mark.usefixtures("cgroups")
def test_what_a_command_leaves_behind_is_killed_and_the_group_removed() -> None:
    group = MemoryGroup(LIMIT)
    child = subprocess.Popen(group.entering(["sleep", "1000"]))
    for _ in range(200):
        if (group.path / "cgroup.procs").read_text().split():
            break
        time.sleep(0.01)
    group.remove()
    assert child.wait(timeout=10) == -signal.SIGKILL
    assert not group.path.exists()


@pytest.mark.usefixtures("cgroups")
def test_the_command_line_writes_a_report_and_passes_the_status_on(tmp_path: Path) -> None:
    script, report = memory_limit.__file__, tmp_path / "report.json"
    command = [sys.executable, script, "--limit", "128M", "--report", str(report), "--"]
    done = subprocess.run([*command, *python("raise SystemExit(7)")], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert "limit 0.12 GiB" in done.stderr
    assert json.loads(report.read_text())["limit"] == LIMIT
    killed = subprocess.run([*command, *python(ALLOCATE, 3 * LIMIT)], capture_output=True, text=True, check=False)
    assert killed.returncode == 128 + signal.SIGKILL
    assert json.loads(report.read_text())["out_of_memory"] is True


def test_without_a_cgroup_the_command_runs_and_the_report_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory_limit, "_parents", lambda proc: iter(()))
    usage = run(python(f"{ALLOCATE}; import time; time.sleep(0.2)", 64 * MIB), LIMIT)
    assert (usage.status, usage.limit) == (0, None)
    assert "none is mounted" in (usage.no_limit_because or "")
    assert "run as root" in capsys.readouterr().err
    assert 64 * MIB <= usage.peak_anonymous < 128 * MIB
    assert usage.peak_total >= usage.peak_anonymous


def test_groups_are_looked_for_where_the_kernel_says(tmp_path: Path) -> None:
    """The description of a machine with version 2: a user's session, in which the memory controller is delegated."""
    mount = tmp_path / "cgroup"
    session = mount / "user.slice" / "session.scope"
    session.mkdir(parents=True)
    (mount / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (session.parent / "cgroup.subtree_control").write_text("cpu\n")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("0::/user.slice/session.scope\n")
    (proc / "mountinfo").write_text(f"30 23 0:26 / {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n")
    assert [group for _, group in memory_limit._parents(proc)] == [mount]
    # This folder is no cgroup: what is made in it has no controller, and it is removed again.
    with pytest.raises(NoMemoryGroup, match=r"no memory controller.*run as root"):
        MemoryGroup(LIMIT, proc)
    assert sorted(path.name for path in mount.iterdir()) == ["cgroup.subtree_control", "user.slice"]


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 << 30), ("512M", 512 << 20), ("1.5g", 3 << 29), ("4096", 4096), ("2 KB", 2048)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert num_bytes(text) == size


def test_what_is_no_size_is_refused() -> None:
    with pytest.raises(ValueError, match="'lots' is no size"):
        num_bytes("lots")


def test_a_file_that_is_forgotten_keeps_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep" / "file"
    file.write_bytes(os.urandom(10_000))
    before = file.read_bytes()
    forget([tmp_path, file])
    assert file.read_bytes() == before

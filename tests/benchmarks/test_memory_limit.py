"""Commands under a memory limit: real processes in a real cgroup, where this machine lets us make one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import memory_limit
import pytest
from memory_limit import MemoryGroup, forget, run

MIB = 1 << 20
LIMIT = 128 * MIB

ALLOCATE = "import sys; data = bytearray(int(sys.argv[1])); data[::4096] = b'x' * len(data[::4096])"
# Touches every page of a mapped file and prints a sum that shows that it did.
MAP = """
import mmap, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
    print(sum(view[place] for place in range(0, len(view), 4096)))
"""


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
    while not (group.path / "cgroup.procs").read_text().split():
        time.sleep(0.01)
    group.remove()
    assert child.wait() == -signal.SIGKILL
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

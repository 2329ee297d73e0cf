from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oddnode._utils import atomic_files
from oddnode._utils.atomic_files import new_file, new_folder, read_folder, recover

FILES = ("a", "b", "c")


def write_folder(folder: Path, text: str) -> None:
    for name in FILES:
        (folder / name).write_text(text)


def texts(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in FILES]


def save(target: Path, text: str) -> None:
    with new_folder(target) as part:
        write_folder(part, text)


def no_exchange(*_: Path) -> bool:
    return False


@pytest.fixture(params=["exchange", "portable"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to replace a folder: that of Linux, and that of systems that cannot exchange folders."""
    if request.param == "portable":
        monkeypatch.setattr(atomic_files, "exchange", no_exchange)
    return request.param


def _write_half(path: Path, failure: BaseException) -> None:
    path.write_text("half")
    raise failure


def test_files_appear_whole_with_the_usual_permissions(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    mask = os.umask(0o022)
    try:
        with new_file(target) as part:
            part.write_text("new")
            assert target.read_text() == "old"
        assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]
        save(tmp_path / "m", "new")
    finally:
        os.umask(mask)
    assert target.read_text() == "new"
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o755
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_failure_leaves_what_was_there(tmp_path: Path, failure: BaseException, new: Callable[[Path], Any]) -> None:
    target = tmp_path / "out"
    inside = "" if new is new_file else "a"
    (target / inside).parent.mkdir(exist_ok=True)
    (target / inside).write_text("old")
    message = r"cannot write .*out.*: No space left on device" if isinstance(failure, OSError) else None
    with pytest.raises(type(failure), match=message), new(target) as part:
        _write_half(part / inside, failure)
    assert (target / inside).read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_name_too_long_for_its_sibling_is_refused_before_the_work(tmp_path: Path, new: Callable[[Path], Any]) -> None:
    with pytest.raises(OSError, match="has 250 bytes, expected at most 2"), new(tmp_path / ("é" * 125)):
        pytest.fail("the work was done")


def test_the_longest_name_works_and_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 2**32 - 1)
    longest = 0
    for length in range(1, 256):
        try:
            atomic_files.check_name(tmp_path / ("n" * length))
        except OSError:
            break
        longest = length
    with new_file(tmp_path / ("n" * longest)) as part:
        assert len(part.name) <= 255
    assert longest > 200
    with (
        pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"),
        new_file(tmp_path / "nowhere/a"),
    ):
        pass


CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "listdir")


class Interrupts:
    """Raises KeyboardInterrupt at one call of the operating system, before or after it has had its effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, after: bool):
        self.count, self.at, self.after = 0, at, after
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrapped(getattr(os, name)))
        monkeypatch.setattr(atomic_files, "exchange", self.wrapped(atomic_files.exchange))

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            is_this = self.count == self.at
            if is_this and not self.after:
                raise KeyboardInterrupt
            result = call(*args, **kwargs)
            if is_this:
                raise KeyboardInterrupt
            return result

        return interrupted


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("old", [None, "old"])
def test_an_interrupt_at_any_call_leaves_a_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, after: bool, old: str | None
) -> None:
    interrupted = 0
    for at in range(1, 100):
        target = tmp_path / str(at) / "model"
        target.parent.mkdir()
        if old is not None:
            target.mkdir()
            write_folder(target, old)
        with monkeypatch.context() as patch:
            interrupts = Interrupts(patch, at, after)
            try:
                save(target, "new")
            except KeyboardInterrupt:
                interrupted += 1
        if interrupts.count < at:
            break
        if target.exists() or old is not None:
            assert texts(target) in ([old] * 3, ["new"] * 3)
        # What an interrupt of the last clean-up leaves is ours, and the next process removes it.
        with monkeypatch.context() as patch:
            patch.setattr(atomic_files, "is_running", lambda pid: False)
            save(target, "newer")
        assert texts(target) == ["newer"] * 3
        assert os.listdir(target.parent) == ["model"]
    assert interrupted >= (3 if old is None else 6)
    assert texts(target) == ["new"] * 3


SCRIPT = """
import sys
from pathlib import Path
from oddnode._utils import atomic_files
target, text, way, times = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
if way == "portable":
    atomic_files.exchange = lambda *_: False
for _ in range(times):
    with atomic_files.new_folder(target) as part:
        for name in "abc":
            (part / name).write_text(text)
"""


def run_script(target: Path, text: str, way: str, times: int) -> subprocess.Popen:
    command = [sys.executable, "-c", SCRIPT, str(target), text, way, str(times)]
    source = str(Path(atomic_files.__file__).parents[2])
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": source}, stderr=subprocess.PIPE, text=True)


def test_writers_of_one_folder_do_not_disturb_each_other_or_a_reader(tmp_path: Path, way: str) -> None:
    target = tmp_path / "model"
    save(target, "0")
    writers = [run_script(target, str(number), way, times=100) for number in range(1, 4)]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        found = read_folder(target, texts)
        assert len(set(found)) == 1, found
        seen |= set(found)
    for writer in writers:
        assert writer.communicate()[1] == ""
        assert writer.returncode == 0
    assert len(seen) > 1
    assert os.listdir(tmp_path) == ["model"]


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def sibling_of(target: Path, kind: str, pid: int, machine: str | None = None) -> Path:
    return target.with_name(f".{target.name}.oddnode-{machine or atomic_files._machine()}-{pid}-0123abcd.{kind}")


def test_what_a_dead_process_left_is_removed_by_the_next_writer(tmp_path: Path, dead: int) -> None:
    target = tmp_path / "scores.csv"
    sibling_of(target, "new", dead).write_text("half")
    sibling_of(target, "old", dead).mkdir()
    (sibling_of(target, "old", dead) / "a").write_text("old")
    target.write_text("whole")
    with new_file(target) as part:
        part.write_text("new")
    assert os.listdir(tmp_path) == ["scores.csv"]


def test_what_is_not_ours_or_still_at_work_stays(tmp_path: Path, dead: int) -> None:
    target = tmp_path / "m"
    target.write_text("")
    others = [
        sibling_of(target, "new", os.getpid()),
        sibling_of(target, "new", os.getppid()),
        sibling_of(target, "new", dead, machine="00000000"),
        sibling_of(tmp_path / "m.m", "new", dead),
        tmp_path / ".m.abcdefgh",
        tmp_path / f".m.oddnode-{dead}.new",
        sibling_of(target, "new", dead).with_suffix(".txt"),
    ]
    for other in others:
        other.write_text("theirs")
    recover(target)
    assert [other.read_text() for other in others] == ["theirs"] * len(others)


def test_a_link_is_not_followed(tmp_path: Path, dead: int) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "a").write_text("a")
    target = tmp_path / "m"
    sibling_of(target, "new", dead).symlink_to(kept)
    recover(target)
    assert os.listdir(tmp_path) == ["kept"]
    assert (kept / "a").exists()


def test_another_machines_sibling_goes_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "m"
    sibling_of(target, "new", 1, machine="00000000").write_text("")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 23 * 3600)
    recover(target)
    assert len(os.listdir(tmp_path)) == 1
    monkeypatch.setattr("time.time", lambda: now + 25 * 3600)
    recover(target)
    assert os.listdir(tmp_path) == []


def test_a_folder_moved_aside_by_a_killed_process_is_put_back_by_a_reader(tmp_path: Path, dead: int) -> None:
    target = tmp_path / "m"
    aside = sibling_of(target, "old", dead)
    aside.mkdir()
    (aside / "a").write_text("old")
    # It was written long ago, but moved aside just now.
    os.utime(aside, (0, 0))
    sibling_of(target, "new", dead).mkdir()
    assert read_folder(target, lambda folder: (folder / "a").read_text()) == "old"
    recover(target)
    assert os.listdir(tmp_path) == ["m"]


def test_a_folder_that_cannot_be_put_back_is_kept(tmp_path: Path, dead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Path) -> None:
        raise PermissionError

    target = tmp_path / "a.b (c)[d]"  # a name that is no pattern
    aside = sibling_of(target, "old", dead)
    aside.mkdir()
    monkeypatch.setattr(os, "rename", refuse)
    recover(target)
    assert atomic_files.moved_aside(target) == aside

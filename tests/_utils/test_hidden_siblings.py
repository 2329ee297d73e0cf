from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oddnode._utils import hidden_siblings
from oddnode._utils.atomic_files import new_file, read_folder
from oddnode._utils.hidden_siblings import hidden_sibling, recover


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def sibling_of(target: Path, kind: str, pid: int, machine: str | None = None) -> Path:
    return target.with_name(f".{target.name}.oddnode-{machine or hidden_siblings._machine()}-{pid}-0123abcd.{kind}")


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

    target = tmp_path / "m"
    aside = sibling_of(target, "old", dead)
    aside.mkdir()
    monkeypatch.setattr(os, "rename", refuse)
    recover(target)
    assert hidden_siblings.moved_aside(target) == aside


def test_the_name_of_a_sibling_is_found_again(tmp_path: Path) -> None:
    target = tmp_path / "a.b (c)[d]"
    sibling = hidden_sibling(target, "old")
    sibling.mkdir()
    assert hidden_siblings.moved_aside(target) == sibling

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from oddnode._utils.atomic_files import new_file, new_folder


def _write_half(path: Path, failure: BaseException) -> None:
    path.write_text("half")
    raise failure


def test_a_file_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    with new_file(target) as part:
        part.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: BaseException) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises(type(failure)), new_file(target) as part:
        _write_half(part, failure)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_a_full_disk_names_what_did_not_fit(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(OSError, match=r"cannot write .*out.txt: No space left on device"),
        new_file(tmp_path / "out.txt") as part,
    ):
        _write_half(part, full)


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_failure_leaves_the_old_folder_and_nothing_else(tmp_path: Path, failure: BaseException) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("old")
    with pytest.raises(type(failure)), new_folder(target) as part:
        _write_half(part / "a", failure)
    assert (target / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_folder_is_put_back_when_the_last_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("old")
    rename, calls = Path.rename, []

    def fail_on_second(self: Path, other: Path) -> Path:
        calls.append(self)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", fail_on_second)
    with pytest.raises(OSError, match="Input/output"), new_folder(target) as part:
        (part / "a").write_text("new")
    assert (target / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        with new_folder(tmp_path / "m") as part:
            (part / "a").write_text("")
        with new_file(tmp_path / "f") as part:
            part.write_text("")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o644


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"),
        new_file(tmp_path / "nowhere/a"),
    ):
        pass

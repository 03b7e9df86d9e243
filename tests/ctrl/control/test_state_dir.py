"""State that outlives `down`: its place, and files in it that are not trusted."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from careful.control.options import config
from careful.control.state.state_dir import BYTES_MAX, DEFAULT, VARIABLE, StateDir, place
from careful.errors import CarefulError

NAME = "tuning.eth1.json"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def state(tmp_path: Path, said: list[str]) -> StateDir:
    return StateDir(tmp_path / "lib" / "careful", said.append)


def test_place__environment_configuration_default(monkeypatch: pytest.MonkeyPatch) -> None:
    file = config.parse('[state]\ndirectory = "/srv/kept"', Path("careful.toml"))
    monkeypatch.setenv(VARIABLE, "/tmp/here")
    assert place(file) == Path("/tmp/here")
    monkeypatch.delenv(VARIABLE)
    assert place(file) == Path("/srv/kept")
    assert place(config.Config()) == DEFAULT


@pytest.mark.parametrize(
    "text",
    ["state = 1", "[state]\nfolder = 1", "[state]\ndirectory = 1", '[state]\ndirectory = "here"'],
)
def test_place__invalid_configuration(text: str) -> None:
    with pytest.raises(CarefulError, match=r"\[state\]"):
        config.parse(text, Path("careful.toml"))


def test_write__is_read_again_and_leaves_one_file(state: StateDir, said: list[str]) -> None:
    assert state.read(NAME) == {}
    assert state.write(NAME, {"schema": 1})
    assert state.write(NAME, {"schema": 2})
    assert state.read(NAME) == {"schema": 2}
    assert [one.name for one in state.path.iterdir()] == [NAME]
    assert (state.path / NAME).stat().st_mode & 0o777 == 0o644
    assert not said


@pytest.mark.parametrize("text", ["", "{", "[]", "nul\0", "[" * 100_000, "\udcff"])
def test_read__garbage_is_absent(state: StateDir, said: list[str], text: str) -> None:
    state.write(NAME, {})
    (state.path / NAME).write_bytes(text.encode(errors="surrogateescape"))
    for _ in range(3):
        assert state.read(NAME) == {}
    assert len(said) == 1
    assert "damaged" in said[0]
    assert state.write(NAME, {"schema": 1})
    assert state.read(NAME) == {"schema": 1}


def test_read__a_file_that_others_may_write_is_absent(state: StateDir, said: list[str]) -> None:
    state.write(NAME, {"schema": 1})
    (state.path / NAME).chmod(0o666)
    assert state.read(NAME) == {}
    assert "others may write" in said[0]
    state.write(NAME, {"schema": 1})  # replaced by our own file
    assert state.read(NAME) == {"schema": 1}
    state.path.chmod(0o777)
    assert state.read(NAME) == {}
    assert not state.write(NAME, {"schema": 2})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_read__a_foreign_file_is_absent(state: StateDir, said: list[str]) -> None:
    state.write(NAME, {"schema": 1})
    os.chown(state.path / NAME, 1234, -1)
    assert state.read(NAME) == {}
    assert "belongs to user 1234" in said[0]
    os.chown(state.path, 1234, -1)
    assert not state.write(NAME, {"schema": 2})
    assert "belongs to user 1234" in said[1]


def test_read__a_special_file_is_absent(state: StateDir, said: list[str]) -> None:
    state.write("other", {"schema": 1})
    os.mkfifo(state.path / NAME)
    assert state.read(NAME) == {}
    assert "not a regular file" in said[0]
    (state.path / NAME).unlink()
    (state.path / NAME).symlink_to("other")
    assert state.read(NAME) == {}


def test_read__a_file_that_is_too_large_is_absent(state: StateDir, said: list[str]) -> None:
    state.write(NAME, {})
    with (state.path / NAME).open("r+b") as file:
        file.truncate(BYTES_MAX + 1)
    assert state.read(NAME) == {}
    assert "more than" in said[0]


def test_write__the_directory_cannot_be_made(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "file").write_text("")
    state = StateDir(tmp_path / "file" / "careful", said.append)
    for _ in range(3):
        assert not state.write(NAME, {"schema": 1})
        assert state.read(NAME) == {}
    assert any("nothing is saved" in one for one in said)
    assert len(said) == len(set(said))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A full file system of one page."""
    folder = tmp_path / "full"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=0755", "none", str(folder)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_write__to_a_full_disk_leaves_the_old_file(full: Path, said: list[str]) -> None:
    state = StateDir(full, said.append)
    assert state.write(NAME, {"schema": 1})
    assert not state.write(NAME, {"long": "x" * 8192})
    assert os.strerror(errno.ENOSPC) in said[0]
    assert state.read(NAME) == {"schema": 1}
    assert [one.name for one in full.iterdir()] == [NAME]

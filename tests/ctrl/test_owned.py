"""Every reader refuses configuration files that others own or may write."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from careful.control.options import config
from careful.errors import CarefulError
from careful.fleet import hosts

NOBODY = 65534
#: Reader of a configuration file -> a valid text.
READERS: list[tuple[Callable[[Path], object], str]] = [
    (config.load, "[nodes]"),
    (hosts.read, "[host.h1]"),
]


@pytest.fixture(params=READERS, ids=["careful.toml", "fleet.toml"])
def readable(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[], object]]:
    """Returns a file and its reader."""
    reader, text = request.param
    path = tmp_path / "file.toml"
    path.write_text(text)
    path.chmod(0o644)
    return path, lambda: reader(path)


def refused(read: Callable[[], object], said: str) -> None:
    with pytest.raises(CarefulError, match=said) as found:
        read()
    assert found.value.errno == errno.EPERM


def test_read__a_file_that_others_may_write(readable: tuple[Path, Callable[[], object]]) -> None:
    path, read = readable
    assert read()
    path.chmod(0o646)
    refused(read, "others may write it")


def test_read__a_file_that_another_group_may_write(
    readable: tuple[Path, Callable[[], object]],
) -> None:
    path, read = readable
    if os.geteuid():
        pytest.skip("needs root, to give a file to a group")
    path.chmod(0o664)
    assert read()  # root's group
    os.chown(path, 0, NOBODY)
    refused(read, "others may write it")


def test_read__belongs_to_another_user(
    readable: tuple[Path, Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = readable
    if os.geteuid():
        pytest.skip("needs root, to give a file away")
    monkeypatch.delenv("SUDO_UID", raising=False)
    os.chown(path, NOBODY, 0)
    refused(read, f"belongs to user {NOBODY}")
    monkeypatch.setenv("SUDO_UID", str(NOBODY))  # the user of sudo
    assert read()


def test_load__a_default_that_others_own_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "careful.toml"
    path.write_text("[nodes]")
    path.chmod(0o666)
    monkeypatch.setattr(config, "DEFAULT_PATHS", (path,))
    refused(config.load, "others may write it")

"""Tests the packages that `installed` upgrades: of an older commit, and of a future release."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from tool_module import load_tool

CONTROL = """Package: {}
Version: {}
Architecture: all
Maintainer: nobody <nobody@localhost>
Depends: python3:any{}
Description: a package of a test
"""


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Module debian.py, with a repository and folders of the test."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "machines"))
    from emulated import debian as module

    monkeypatch.setattr(module, "ROOT", tmp_path / "repository")
    monkeypatch.setattr(module, "PLACE", tmp_path / "place")
    monkeypatch.setattr(module, "PACKAGES", tmp_path / "packages")
    for name in ("repository", "place", "packages"):
        (tmp_path / name).mkdir()
    return module


def git(repository: Path, *argv: str) -> str:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    command = ["git", "-C", str(repository), *who, *argv]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def package(folder: Path, name: str, version: str, more: str = "") -> None:
    tree = folder / name
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(CONTROL.format(name, version, more))
    to = folder / f"{name}_{version}_all.deb"
    subprocess.run(["dpkg-deb", "-b", tree, to], capture_output=True, check=True)


def field(path: Path, name: str) -> str:
    argv = ["dpkg-deb", "-f", path, name]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_older__is_built_once_by_its_own_tools(debian: ModuleType, tmp_path: Path) -> None:
    repository, builds = debian.ROOT, tmp_path / "builds"
    program = repository / "tools/package"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh -e\ncd \"$(dirname \"$0\")\"; pwd >>{builds}\n"
                       "mkdir -p ../build/package; cp ../*.deb ../build/package\n")  # fmt: skip
    program.chmod(0o755)
    package(repository, "careful", "0.1.0")
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "older")
    commit = git(repository, "rev-parse", "HEAD").strip()
    program.unlink()
    git(repository, "commit", "-qam", "newer")
    for _ in range(2):
        (made,) = debian.older(commit[:8])
        assert (made.name, field(made, "Version")) == ("careful_0.1.0_all.deb", "0.1.0")
    assert builds.read_text() == f"{debian.PLACE}/older/tools\n"
    assert git(repository, "worktree", "list").count("\n") == 1


def test_older__one_that_fails_says_where(debian: ModuleType) -> None:
    program = debian.ROOT / "tools/package"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no compiler; exit 1\n")
    program.chmod(0o755)
    git(debian.ROOT, "init", "-q")
    git(debian.ROOT, "add", ".")
    git(debian.ROOT, "commit", "-qm", "older")
    with pytest.raises(debian.LabError, match=r"failed: .*/place/from-\w{12}.log says why"):
        debian.older("HEAD")
    (log,) = debian.PLACE.glob("from-*.log")
    assert log.read_text() == "no compiler\n"
    assert git(debian.ROOT, "worktree", "list").count("\n") == 1


def test_older__a_missing_commit_is_named(debian: ModuleType) -> None:
    git(debian.ROOT, "init", "-q")
    with pytest.raises(debian.LabError, match="git: fatal: Needed a single revision"):
        debian.older("1" * 40)


def test_packages__must_be_built_first(debian: ModuleType) -> None:
    with pytest.raises(debian.LabError, match="run tools/package first"):
        debian.packages()
    package(debian.PACKAGES, "careful", "0.2.0")
    assert [one.name for one in debian.packages()] == ["careful_0.2.0_all.deb"]


def test_following__has_the_next_socket_version_and_is_newer(debian: ModuleType) -> None:
    header = debian.ROOT / "datapath/include/careful/ipc.h"
    header.parent.mkdir(parents=True)
    header.write_text("enum { CAREFUL_IPC_VERSION = 10, /* raised */\n")
    program = debian.ROOT / "tools/package"
    program.parent.mkdir()
    program.write_text("#!/bin/sh -e\ncd \"$(dirname \"$0\")/..\"\n"
                       "mkdir -p build/package careful/DEBIAN\n"
                       "cp control careful/DEBIAN; cp datapath/include/careful/ipc.h careful\n"
                       "dpkg-deb -b careful build/package/careful_0.2.0_all.deb\n")  # fmt: skip
    program.chmod(0o755)
    (debian.ROOT / "control").write_text(CONTROL.format("careful", "0.2.0", ""))
    git(debian.ROOT, "init", "-q")
    git(debian.ROOT, "add", ".")
    git(debian.ROOT, "commit", "-qm", "today")
    (made,) = debian.following()
    assert field(made, "Version") == "0.2.0+next"
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", made], capture_output=True, check=True)
    assert b"CAREFUL_IPC_VERSION = 11," in tar.stdout
    assert "= 10," in header.read_text()
    order = ["dpkg", "--compare-versions", "0.2.0+next", "gt", "0.2.0"]
    assert subprocess.run(order).returncode == 0


def test_steps__there_is_one_of_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the upgrade installs other packages; the other steps begin with today's."""
    tool = load_tool("tests/machines/installed", monkeypatch)
    assert tool.STEPS[:2] == ("upgrade", "install")
    assert tool.STEPS[-1] == "remove"
    assert len(set(tool.STEPS)) == len(tool.STEPS)
    assert all(callable(getattr(tool.Steps, name)) for name in tool.STEPS)

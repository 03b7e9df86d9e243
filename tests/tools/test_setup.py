"""Tests that tools/setup installs each package by its hash, and test packages only for tests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

TOOLS = Path(__file__).parents[2] / "tools"


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def pinned(name: str) -> dict[str, tuple[str, list[str]]]:
    """Returns version and hashes of each package in a requirements file for this Python."""
    text = (TOOLS / "python-packages" / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = [
        re.fullmatch(
            r"(\S+)==(\S+)(?: ; (.*?))?((?: +--hash=sha256:[0-9a-f]{64})+) *",
            one,
        )
        for one in lines
    ]
    assert all(found), [line for line, one in zip(lines, found, strict=True) if not one]
    return {
        normal(one[1]): (one[2], one[4].split())
        for one in found
        if one and (not one[3] or Marker(one[3]).evaluate())
    }


def needed(package: str, extras: Iterable[str] = ()) -> set[str]:
    """Returns the dependencies of an installed package, recursively."""
    seen: set[tuple[str, str]] = set()
    todo = [(package, extra) for extra in ("", *extras)]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for one in map(Requirement, metadata.requires(name) or ()):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                todo += [(normal(one.name), more) for more in ("", *one.extras)]
    return {name for name, _ in seen if name != "careful"}


def test_requirements__without_tests_are_carefuls_own() -> None:
    wanted = needed("careful") | needed("scikit-build-core")
    assert set(pinned("requirements.txt")) == wanted
    extras = needed("careful", ("plan", "plot", "exporter")) - wanted
    assert (
        {"matplotlib", "prometheus-client", "scipy"}
        <= extras
        == set(pinned("requirements-extras.txt"))
    )


def test_requirements__are_installed_by_their_hashes() -> None:
    """A version without a hash trusts the index, and the package's account, on the day of the
    set-up.
    """
    mine = pinned("requirements.txt") | pinned("requirements-extras.txt")
    tests = pinned("requirements-test.txt")
    assert not set(mine) & set(tests)
    assert "auditwheel" in pinned("requirements-package.txt")  # has hashes
    for name, (version, _) in (mine | tests).items():
        assert metadata.version(name) == version
    installs = re.findall(r"-m pip install(?:[^\n]*\\\n)*[^\n]*", (TOOLS / "setup").read_text())
    fetching = [one for one in installs if '"$root"' not in one]  # except careful itself
    assert fetching
    assert all("--require-hashes" in one and "--no-deps" in one for one in fetching)
    assert len(installs) == len(fetching) + 1


def test_build__below_a_path_with_a_space(tmp_path: Path) -> None:
    """Only for the manual does CMake itself start a program in the wheel's build."""
    root = tmp_path / "a space"
    root.mkdir()
    for name in ("datapath", "ebpf", "tests", "tools"):
        (root / name).symlink_to(TOOLS.parent / name)
    argv = ["cmake", "-S", root / "datapath", "-B", root / "build", "-G", "Ninja"]
    given = {
        "SKBUILD": "ON",
        "SKBUILD_DATA_DIR": root / "data",
        "SKBUILD_PLATLIB_DIR": root / "lib",
    }
    argv += [f"-D{key}={value}" for key, value in given.items()]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (root / "build/cmake_install.cmake").read_text()
    (words,) = re.findall(r"COMMAND (.+\n.+)\n +COMMAND_ERROR", text)
    program = (root / "tools/gen/pages.py").resolve()
    last = [str(root / "lib/careful"), str(root / "data/share/man")]
    python, named, *rest = shlex.split(words)
    assert (Path(python).name[:6], Path(named).resolve(), rest) == ("python", program, last)


def test_hint__of_a_path_with_a_space(tmp_path: Path) -> None:
    (line,) = re.findall(r'^say "ready.*', (TOOLS / "setup").read_text(), re.M)
    script = f"""say() {{ eval "${{1#*: }}"; }}; venv=$1; {line}; echo "$PATH" """
    argv = ["bash", "-c", script, "-", "/a space/.venv"]
    path = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert path.startswith("/a space/.venv/bin:/")


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("E: Unable to locate package nosuch", "installing failed: E: Unable to locate"),
        ("ERROR: No matching distribution found for nosuch==1", "installing failed: ERROR: No"),
        (
            "Hit:1 http://deb.example bookworm InRelease\n"
            "W: Failed to fetch http://third.example  Could not resolve 'third.example'\n"
            "E: Unable to locate package nosuch",
            "installing failed: E: Unable to locate",
        ),
        (
            "Get:1 http://deb.example bookworm InRelease\n"
            "E: Failed to fetch http://deb.example/a.deb  Could not connect to deb.example:80",
            "packages are missing and cannot be fetched (offline?): installing failed: E: Failed",
        ),
        (
            "SSLError(SSLCertVerificationError('certificate verify failed: self-signed'))\n"
            "ERROR: No matching distribution found for click==8",
            "packages cannot be fetched (a proxy's certificate must be installed here first): ",
        ),
        (
            "Failed to establish a new connection: [Errno -3] Temporary failure\n"
            "ERROR: No matching distribution found for click==8",
            "packages are missing and cannot be fetched (offline?): installing failed: ERROR: No",
        ),
    ],
)
def test_failure__names_its_cause(printed: str, expected: str, tmp_path: Path) -> None:
    functions = (TOOLS / "setup").read_text().split("\ncheck_host\n")[0]
    script = (
        f'set run build; {functions}\nlog=$LOG run installing sh -c "echo \\"\\$PRINTED\\"; exit 1"'
    )
    env = os.environ | {"LOG": str(tmp_path / "log"), "PRINTED": printed}
    argv = ["bash", "-c", script, TOOLS / "setup"]
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert done.stderr.startswith(f"setup: {expected}")


def test_another_distribution__is_told_the_missing_packages(tmp_path: Path) -> None:
    """Without dpkg-query the programs and libraries themselves are looked for."""
    clang = tmp_path / "clang"
    clang.write_text("#!/bin/sh\n")
    clang.chmod(0o755)
    functions = (TOOLS / "setup").read_text().split("\ncheck_host\n")[0]
    script = f"set run build; {functions}\nPATH=$HERE; install_packages"
    argv = ["bash", "-c", script, TOOLS / "setup"]
    env = os.environ | {"HERE": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    assert done.returncode == 1
    (missing,) = re.findall(r"^setup: missing here: (.*?);", done.stderr)
    assert {"cmake", "libxdp.pc"} <= set(missing.split())
    assert "clang" not in missing.split()

"""Debian's source package and the container: named files exist and are built from source."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEBIAN = ROOT / "debian"
CONTAINER = (ROOT / "tools/packaging/Containerfile").read_text()


def field(text: str, name: str) -> str:
    found = re.findall(rf"^{name}: (.*(?:\n .*)*)", text, re.M)[0]
    return str(found)


def names(relations: str) -> set[str]:
    return {re.split(r"[ (:]", one.strip())[0] for one in relations.split(",")}


def listed(group: str) -> list[str]:
    """Returns the Debian packages of a group of tools/packages."""
    lines = (ROOT / "tools/packages").read_text().splitlines()
    return [words[1] for line in lines if (words := line.split())[:1] == [group]]


def test_control__build_dependencies_are_those_of_setup() -> None:
    """build-essential has the compiler and libc's headers."""
    wanted = names(field((DEBIAN / "control").read_text(), "Build-Depends"))
    own = {"gcc", "libc6-dev", "pkg-config", "python3-venv"}
    assert {*listed("build"), *listed("run")} - own - wanted <= {
        *("ca-certificates", "ethtool", "iproute2", "python3-bpfcc"),
    }
    assert {one for one in wanted if one.startswith("python3-")} - {"python3-dev"} <= {
        *listed("package"),
    }


def test_install__sources_exist() -> None:
    """debian/rules builds debian/stage."""
    rules = (DEBIAN / "rules").read_text()
    named = [
        line.split()[0] for path in DEBIAN.glob("*.install") for line in path.open() if line.strip()
    ]
    assert named
    for one in named:
        if one.startswith("debian/stage/"):
            assert f"$(STAGE)/{one.split('/')[2]}" in rules
        else:
            assert list(ROOT.glob(one)), one


def test_programs__that_people_do_not_call_are_in_libexec() -> None:
    lines = (DEBIAN / "careful.install").read_text().splitlines()
    assert "debian/stage/bin/careful-* usr/libexec/careful" in lines
    to_bin = {line.split()[0].rpartition("/")[2] for line in lines if line.endswith(" usr/bin")}
    assert to_bin == {"carefuld", "carefulctl"}


def test_maintainer__is_not_debian() -> None:
    for name in ("control", "changelog"):
        assert "debian.org" not in re.sub(r"https?://\S*", "", (DEBIAN / name).read_text())


def test_source__is_complete_like_an_upstreams() -> None:
    assert (DEBIAN / "source/format").read_text() == "3.0 (quilt)\n"
    assert re.search(r"^opts=.*\n?.* refs/tags/v", (DEBIAN / "watch").read_text(), re.M)
    assert "hardening=+all" in (DEBIAN / "rules").read_text()


def test_autopkgtest__each_is_a_shell_script() -> None:
    text = (DEBIAN / "tests/control").read_text()
    found = re.findall(r"^Tests: (.*)", text, re.M)
    assert sorted(found) == ["pair", "smoke"]
    for one in found:
        path = DEBIAN / "tests" / one
        assert os.access(path, os.X_OK)
        subprocess.run(["sh", "-n", path], check=True)


def test_metadata__is_that_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools/gen"))
    importlib.import_module("dist_info").write(tmp_path)
    (made,) = metadata.distributions(path=[str(tmp_path)])
    wheel = metadata.distribution("careful")
    assert (made.name, made.version) == ("careful", wheel.version)

    def plain(lines: list[str] | None) -> set[str]:
        return {re.sub(r"[ '\"]", "", one) for one in lines or []}

    assert plain(made.requires) == plain(wheel.requires)
    points = [
        {(one.group, one.name, one.value) for one in each.entry_points} for each in (made, wheel)
    ]
    assert points[0] == points[1] != set()


def test_container__copies_packages_that_are_built() -> None:
    (patterns,) = re.findall(r"^COPY (.*) /tmp/$", CONTAINER, re.M)
    built = re.findall(r"^Package: (.*)", (DEBIAN / "control").read_text(), re.M)
    copied = [one.removesuffix("_*.deb") for one in patterns.split()]
    assert {"careful", "python3-careful"} <= set(copied) <= set(built)


def test_container__installs_the_recommended_packages() -> None:
    (words,) = re.findall(r"--no-install-recommends (.*?) /tmp/\*\.deb", CONTAINER)
    recommended = names(field((DEBIAN / "control").read_text(), "Recommends"))
    assert set(words.split()) <= {*recommended, *listed("run")}


def test_container__runs_a_command_that_there_is() -> None:
    (entry,) = re.findall(r'^ENTRYPOINT \["(.*)"\]$', CONTAINER, re.M)
    (words,) = re.findall(r"^CMD \[(.*)\]$", CONTAINER, re.M)
    argv = [entry, *re.findall(r'"(.*?)"', words)]
    assert argv[:3] == ["carefulctl", "up", "--foreground"]
    done = subprocess.run([*argv, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--foreground" in done.stdout

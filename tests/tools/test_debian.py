"""Debian's source package and the container: named files exist and are built from source."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEBIAN = ROOT / "tools/packaging/debian"
CONTAINER = (ROOT / "tools/packaging/Containerfile").read_text()
PACKAGE = (ROOT / "tools/package").read_text()


def field(text: str, name: str) -> str:
    found = re.findall(rf"^{name}: (.*(?:\n .*)*)", text, re.M)[0]
    return str(found)


def function(name: str) -> str:
    """Returns a function of tools/package."""
    (found,) = re.findall(rf"^{name}\(\) {{\n.*?^}}$", PACKAGE, re.M | re.S)
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
        elif one.startswith("debian/"):
            assert (DEBIAN.parent / one).exists()
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


def test_container__has_the_base_of_the_builder(tmp_path: Path) -> None:
    """Packages built on a later Debian need its C library."""
    program = f"""suite=forky root={shlex.quote(str(ROOT))} out={tmp_path}
        {function("write_containerfile")}
        write_containerfile"""
    subprocess.run(["bash", "-ec", program], check=True)
    written = (tmp_path / "Containerfile").read_text()
    assert "\nARG BASE=debian:forky-slim\nFROM $BASE\n" in written
    assert written.count("\n") == CONTAINER.count("\n")
    manual = (ROOT / "ctrl/careful/man/operation/services.md").read_text()
    assert "-f build/package/Containerfile build/package\n" in manual


def test_package__says_which_c_library_is_needed(tmp_path: Path) -> None:
    """Built on Debian 13; only the name of the wheel and the fields of the packages decide."""
    (tmp_path / "careful-1.2.3-cp311-abi3-manylinux_2_38_x86_64.whl").touch()
    for name, depends in {
        "careful": "iproute2, libc6 (>= 2.38), libxdp1 (>= 1.3)",
        "python3-careful": "libc6 (>= 2.4), python3 (>= 3.11)",
    }.items():
        control = tmp_path / name / "DEBIAN/control"
        control.parent.mkdir(parents=True)
        control.write_text(
            f"Package: {name}\nVersion: 1.2.3-1\nArchitecture: all\nMaintainer: A <a@b.invalid>\n"
            f"Depends: {depends}\nDescription: test\n"
        )
        deb = tmp_path / f"{name}_1.2.3-1_all.deb"
        subprocess.run(["dpkg-deb", "-b", control.parents[1], deb], check=True)
    program = f"""out={tmp_path} version=1.2.3 debian=1.2.3-1 arch=all
        say() {{ echo "$*"; }}
        {function("say_needs")}
        say_needs"""
    said = subprocess.run(["bash", "-ec", program], capture_output=True, text=True, check=True)
    assert "glibc 2.38 or later for the wheel, 2.38 for the packages" in said.stdout


def test_package__tries_in_the_distribution_that_built() -> None:
    suites = re.findall(r"\bmake_root (\S+)", PACKAGE)
    assert suites
    assert set(suites) == {'"$suite"'}


def test_package__manual_names_no_version_of_the_c_library() -> None:
    for name in ("README.md", "ctrl/careful/man/operation/services.md"):
        text = (ROOT / name).read_text()
        assert not re.search(r"pip install \S*manylinux", text)
    assert "pip install ./careful-*.whl" in text


def test_container__runs_a_command_that_there_is() -> None:
    (entry,) = re.findall(r'^ENTRYPOINT \["(.*)"\]$', CONTAINER, re.M)
    (words,) = re.findall(r"^CMD \[(.*)\]$", CONTAINER, re.M)
    argv = [entry, *re.findall(r'"(.*?)"', words)]
    assert argv[:3] == ["carefulctl", "up", "--foreground"]
    done = subprocess.run([*argv, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--foreground" in done.stdout

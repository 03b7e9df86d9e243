"""Tests, without a machine, which QEMU a machine gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from emulated import qemu
from laboratory.state import LabError

PROGRAM = qemu.PROGRAMS["amd64"][0]


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provides Debian's QEMU on request; PATH has no other."""
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "here"))
    monkeypatch.setattr(qemu, "unpacked", lambda *_: tmp_path)
    loader = tmp_path / "usr/lib64/ld-linux-x86-64.so.2"
    loader.parent.mkdir(parents=True)
    fake_qemu(loader, "10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)")
    return tmp_path


def fake_qemu(program: Path, version: str, devices: str = "igb options:") -> None:
    program.write_text(
        f"""#!/bin/sh
        case "$*" in
        *--version) echo "QEMU emulator version {version}" ;;
        *help) echo "{devices}" ;;
        esac"""
    )
    program.chmod(0o755)


@pytest.mark.parametrize("version", ["8.1.0", "10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)"])
def test_qemu__of_this_host(unpacked: Path, version: str) -> None:
    fake_qemu(unpacked / "here" / PROGRAM, version)
    assert qemu.qemu("igb")[0] == [PROGRAM]


def test_qemu__of_this_host_is_too_old(unpacked: Path) -> None:
    """With QEMU 7.2, a kernel that changed its own code died in one of thirty starts."""
    fake_qemu(unpacked / "here" / PROGRAM, "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)")
    assert qemu.qemu("igb")[0][0] == unpacked / "usr/lib64/ld-linux-x86-64.so.2"


def test_qemu__of_another_architecture(unpacked: Path) -> None:
    fake_qemu(unpacked / "here" / PROGRAM, "10.0.13")
    assert unpacked / "usr/bin/qemu-system-aarch64" in qemu.qemu("igb", "arm64")[0]


def test_qemu__none_here_and_none_that_serves_there(unpacked: Path) -> None:
    assert unpacked in Path(qemu.qemu("igb")[0][0]).parents
    fake_qemu(unpacked / "usr/lib64/ld-linux-x86-64.so.2", "10.0.13", devices="")
    with pytest.raises(LabError, match="no igb"):
        qemu.qemu("igb")

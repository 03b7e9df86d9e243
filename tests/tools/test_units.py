"""systemd accepts the packages' units, and they leave carefuld the capabilities that it keeps."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import careful
import pytest
from careful.control.carefuld import daemon
from careful.control.instance import instances
from careful.control.instance.instances import Instance
from careful.errors import CarefulError

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "tools" / "packaging" / "systemd"
DEBIAN = ROOT / "tools" / "packaging" / "debian"


def test_units__systemd_takes_them(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    program = shutil.which("carefulctl")
    assert program
    names = []
    for unit in UNITS.iterdir():
        text = unit.read_text()
        assert unit.suffix == ".socket" or "/usr/bin/carefulctl" in text
        (tmp_path / unit.name).write_text(text.replace("/usr/bin/carefulctl", f'"{program}"'))
        names.append(unit.name.replace("@.", "@eth1."))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in names)],
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    errors = [line for line in done.stderr.splitlines() if "caref" in line]
    assert (done.returncode, errors) == (0, []), done.stderr


def test_unit__ends_no_carefuld_that_it_did_not_start() -> None:
    """ExecStopPost also runs after a failed start, when another carefuld may be up."""
    text = (UNITS / "carefuld@.service").read_text()
    (said,) = re.findall(r"^ExecStopPost=-/usr/bin/carefulctl (.*)", text, re.M)
    assert said.split() == ["down", "--dead", "--instance", "%I", "%I"]


def test_unit__bounds_memory() -> None:
    text = (UNITS / "carefuld@.service").read_text()
    (percent,) = re.findall(r"^MemoryMax=(\d+)%$", text, re.M)
    assert 0 < int(percent) < 100


def test_unit__comes_up_with_its_interface() -> None:
    """The service also starts with an interface that appears late or again. BindsTo ends the
    service, and nothing else started it again.
    """
    text = (UNITS / "carefuld@.service").read_text()
    device = "sys-subsystem-net-devices-%i.device"
    assert re.findall(r"^BindsTo=(.*)", text, re.M) == [device]
    assert re.findall(r"^WantedBy=(.*)", text, re.M) == ["multi-user.target", device]


def test_socket__comes_and_goes_with_its_service() -> None:
    """A socket that is active without its service would start a service that somebody stopped."""
    service = (UNITS / "carefuld@.service").read_text()
    text = (UNITS / "carefuld@.socket").read_text()
    assert re.findall(r"^Requires=(.*)", service, re.M) == ["carefuld@%i.socket"]
    assert "carefuld@%i.socket" in re.findall(r"^After=(.*)", service, re.M)[0].split()
    assert "\nStopWhenUnneeded=yes\n" in text
    assert "\nRemoveOnStop=yes\n" in text
    assert "[Install]" not in text
    # Otherwise sockets.target, and so the boot, would wait for the interface.
    assert "\nDefaultDependencies=no\n" in text
    assert re.findall(r"^BindsTo=(.*)", text, re.M) == re.findall(r"^BindsTo=(.*)", service, re.M)


def test_socket__is_where_clients_look() -> None:
    """The unit never replaces the socket of a carefuld that was started by hand."""
    text = (UNITS / "carefuld@.socket").read_text()
    path = str(Instance("%I").socket)
    assert re.findall(r"^ListenSequentialPacket=(.*)", text, re.M) == [path]
    assert re.findall(r"^ConditionPathExists=!(.*)", text, re.M) == [path]


def test_unit__is_named_as_systemd_escapes() -> None:
    names = {"eth1": "carefuld@eth1", "br-lan": r"'carefuld@br\x2dlan'", "e1.7": "carefuld@e1.7"}
    for name, wanted in names.items():
        assert instances.unit("carefuld", name) == wanted
    if not shutil.which("systemd-escape"):
        pytest.skip("systemd-escape is not installed: it does not compare")
    for name, wanted in names.items():
        argv = ["systemd-escape", "--template=carefuld@.service", name]
        output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert output.strip() == wanted.strip("'") + ".service"


def test_prerm__takes_down_the_others_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A carefuld that does not exit does not keep the others up."""
    text = (DEBIAN / "careful.prerm").read_text()
    (program,) = re.findall(r"python3 -P -c '(.*?)' \|\| true", text, re.S)
    gone = []

    def down(ifname: str, name: str) -> None:
        if name == "a":
            raise CarefulError(errno.ETIMEDOUT, "does not exit", "carefuld 7")
        gone.append((ifname, name))

    up = [Instance("a", 7, "eth1"), Instance("b", 8, "eth2")]
    monkeypatch.setattr(instances, "running", lambda: up)
    monkeypatch.setattr(daemon, "down", down)
    exec(program, {})
    assert gone == [("eth2", "b")]
    assert capsys.readouterr().out == "carefuld 7: does not exit\n"


def test_unit__carefuld_may_keep_its_memory() -> None:
    text = (UNITS / "carefuld@.service").read_text()
    given = set(" ".join(re.findall(r"^CapabilityBoundingSet=(.*)", text, re.M)).split())
    kept = re.findall(
        r"\{ (CAP_\w+), NEEDED", (ROOT / "datapath/daemon/process/confine.c").read_text()
    )
    start = re.findall(r"\{ (CAP_\w+), \"", (ROOT / "datapath/device/xsk/xsk_host.c").read_text())
    assert len(kept) >= 8
    assert len(start) >= 4
    assert {*kept, *start} <= given


def control(package: str) -> str:
    """Returns the paragraph of a package in debian/control."""
    text = (DEBIAN / "control").read_text()
    return text.partition(f"Package: {package}\n")[2].partition("\n\n")[0]


def test_control__dh_python3_has_a_package_to_act_on() -> None:
    """Without it the installation compiled nothing, and dh_python3 did not report that."""
    assert "${python3:Depends}" in control("python3-careful")


def test_control__related_packages_have_one_version() -> None:
    assert "python3-careful (= ${binary:Version})" in control("careful")


def test_control__the_python_package_takes_its_files_over() -> None:
    """The files belonged to careful until 0.1.0; without Replaces dpkg does not unpack them."""
    (first,) = re.findall(r"^Replaces: careful \(<< (.*)~\)$", control("python3-careful"), re.M)
    assert f"Breaks: careful (<< {first}~)\n" in control("python3-careful")
    log = (DEBIAN / "changelog").read_text()
    assert re.findall(r"^careful \((.*?)\)", log, re.M)[-2:] == [f"{first}-1", "0.1.0-1"]


def test_packages__are_of_the_version_of_the_project() -> None:
    log = (DEBIAN / "changelog").read_text()
    assert log.startswith(f"careful ({careful.__version__}-")
    assert f'\nversion = "{careful.__version__}"\n' in (ROOT / "pyproject.toml").read_text()


def test_packages__newest_entry_names_the_present_versions() -> None:
    """A release whose format changed needs a new entry, and all hosts upgraded together."""
    entry = (DEBIAN / "changelog").read_text().partition("\n -- ")[0]
    header = ROOT / "datapath/include/careful"

    def number(file: str, name: str) -> str:
        (found,) = re.findall(rf"^\tCAREFUL_{name} = (\d+)", (header / file).read_text(), re.M)
        return str(found)

    wire = f"{number('wire.h', 'WIRE_VERSION')}.{number('wire.h', 'WIRE_MINOR')}"
    assert f"Wire {wire}:" in entry
    assert f"Socket {number('ipc.h', 'IPC_VERSION')}, maps" in entry
    assert f"maps (ABI) {number('abi.h', 'ABI_VERSION')}." in entry

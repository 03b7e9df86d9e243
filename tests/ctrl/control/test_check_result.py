"""Each finding of doctor names its remedy: a command, an option, or a file to change."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from careful._abi import lib
from careful.control.carefuld import needs
from careful.control.checks import machine, option_checks
from careful.control.checks.check_result import FAIL, WARN, Finding, ok, warn
from careful.control.host import links
from careful.control.instance import instances, records, status
from careful.control.options.up_options import UpOptions
from careful.render.instance.doctor import findings
from in_effect import PEER

PACKAGE = Path(machine.__file__).parents[2]


@pytest.mark.parametrize("state", [WARN, FAIL])
def test_finding__each_fault_has_a_remedy(state: str) -> None:
    with pytest.raises(AssertionError, match="ring: no advice"):
        Finding("ring", state, "few")
    assert Finding("ring", state, "few", "more").advice == "more"
    made = [
        path.name for path in PACKAGE.rglob("*.py") if re.search(r"\bFinding\(", path.read_text())
    ]
    assert made == ["check_result.py"]  # the others take ok(), unknown(), and their advice


def _failing(code: int, text: str, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """Returns doctor's findings if every check of libcareful fails with this errno and text."""

    def careful_check(_: Any, number: int, error: Any) -> int:
        error.text = text.encode()
        return -code

    known = SimpleNamespace(CAREFUL_CHECKS=lib.CAREFUL_CHECKS, careful_check=careful_check)
    monkeypatch.setattr(needs, "lib", known)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return list(machine._library(machine.Case("lo", instances.find("careful-none"))))


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EBUSY, errno.ENETDOWN, errno.EOPNOTSUPP])
def test_library__the_errno_gives_the_remedy(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor --fix` runs commands as root, so none is taken from a message."""
    found = _failing(code, "is wrong: `ethtool -L lo rx 1` and `ip link set x up`", monkeypatch)
    assert {one.check for one in found} == {machine._NAMES.get(one, one) for one in machine._ADVICE}
    assert len(found) == lib.CAREFUL_CHECKS
    fixes = {one.check: " ".join(one.fix) for one in found if one.fix}
    wanted = {errno.EINVAL: "ethtool -K lo ntuple on", errno.EOPNOTSUPP: "ethtool -L lo rx 1"}
    assert fixes == ({"steering": wanted[code]} if code in wanted else {})
    advice = {one.check: one.advice for one in found}
    commands = {errno.EBUSY: "ip link set lo nomaster", errno.ENETDOWN: "ip link set lo up"}
    assert advice["interface"].startswith(commands.get(code, "name an Ethernet interface"))
    assert all(one.state == "fail" and "{" not in one.advice for one in found)
    assert [one for one in found if "=FILE" in one.advice] == []  # nobody would know which file


@pytest.mark.parametrize(
    ("pid", "advice"),
    [(0, "end process 4711, which owns the queue"), (12, "carefulctl down eth1, then up")],
)
def test_own_program__was_detached(pid: int, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = SimpleNamespace(statistics=SimpleNamespace(program_detached=1))
    monkeypatch.setattr(status, "info_of", lambda _: info)
    monkeypatch.setattr(instances, "owner_without_daemon", lambda _: 0 if pid else 4711)
    instance = SimpleNamespace(name="eth1", pid=pid)
    case: Any = SimpleNamespace(instance=instance, in_use=True)
    link: Any = SimpleNamespace(name="eth1", xdp_program=None)
    (found,) = machine._own_program(link, case)
    assert (found.state, advice in found.advice) == ("fail", True)


def test_control__names_the_rule_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "peers_at", lambda _: ([], 4000))
    monkeypatch.setattr(records, "unheard", lambda *_: ["the frames of h2 come, but ..."])
    instance: Any = SimpleNamespace(pid=12)
    (found,) = machine._control(links.find("lo"), instance)
    assert found.state == "warn"
    assert "udp dport 4000 accept" in found.advice


def test_control__names_the_peer_behind_a_smaller_link(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [replace(PEER, frame_bytes=1414, path_is_narrow=is_so) for is_so in (True, False)]
    monkeypatch.setattr(status, "peers_at", lambda _: (peers, 4000))
    instance: Any = SimpleNamespace(pid=12)
    every = machine._control(links.find("lo"), instance)
    found = [(one.check, one.state) for one in every if one.check != "routing"]
    assert found == [("path MTU", "warn"), ("control", "ok")]
    assert "h2 have at most 1414 bytes" in records.narrow(peers)[0]


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({}, "ok"),
        ({"seal": "encrypt"}, "fail"),
        ({"export": ("/tmp:rw",)}, "fail"),
        ({"export": ("/tmp:rw",), "insecure": True}, "ok"),
        ({"export": ("/tmp",)}, "ok"),
        ({"export": ("/no such directory:rw",)}, "ok"),
    ],
)
def test_keys__a_host_without_keys(options: dict[str, Any], state: str) -> None:
    """`up` refuses writable exports without keys; doctor once did not say so."""
    found = option_checks.keyed(UpOptions(keys="none", **options))
    assert found.state == state
    assert ("carefulctl key new" in found.text) == (state == "fail")
    assert ("carefulctl key trust HOST KEY" in found.advice) == (state == "fail")


def test_report__names_the_remedy_once() -> None:
    found = [warn("MTU", "is small: `ip link set q1 mtu 9`", "ip link set q1 mtu 9"), ok("a", "b")]
    found.append(warn("port", "is in use", "up --port"))
    assert findings(found).splitlines() == [
        "warn  MTU        is small: `ip link set q1 mtu 9`",
        "ok    a          b",
        "warn  port       is in use (up --port)",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_keys__that_the_effective_user_may_not_see(tmp_path: Path) -> None:
    """In a set-user-ID program the effective user counts, though the real user is root."""
    directory = tmp_path / "keys"
    directory.mkdir(mode=0o700)
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(0o755)
    os.seteuid(65534)
    try:
        found = option_checks.keyed(UpOptions(keys=str(directory)))
    finally:
        os.seteuid(0)
    assert (found.state, found.text) == ("unknown", f"only root can see {directory}")

"""Steering rules: each is remembered at once, and removed only while it is ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from careful.control.host import steer

#: Output of ethtool 6.1 for a rule.
SHOWN = """\
Filter: {}
\tRule Type: UDP over {}
\tSrc port: 0 mask: 0xffff
\tDest port: {} mask: 0x0
\tAction: Direct to queue {}
"""


class Nic:
    """Fakes ethtool and a NIC's rules by number; a new rule gets the lowest free number."""

    def __init__(self) -> None:
        self.rules: dict[str, tuple[str, str, str]] = {}
        self.room = 8

    def run(self, *args: str) -> str | None:
        """Like steer._run()."""
        if args[2] == "flow-type":
            _, _, _, kind, _, port, _, queue = args
            if len(self.rules) >= self.room:
                return None
            free = next(str(k) for k in range(99) if str(k) not in self.rules)
            self.rules[free] = (f"IPv{kind[-1]}", port, queue)
            return f"Added rule with ID {free}\n"
        if args[3] not in self.rules:
            return None
        if args[2] == "delete":
            del self.rules[args[3]]
            return ""
        kind, port, queue = self.rules[args[3]]
        return SHOWN.format(args[3], kind, port, queue)


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Nic:
    one = Nic()
    monkeypatch.setattr(steer, "_run", one.run)
    return one


def test_remove__undoes_add(nic: Nic, tmp_path: Path) -> None:
    record = tmp_path / "eth1" / "steering"
    nic.run("-N", "eth1", "flow-type", "udp4", "dst-port", "53", "action", "1")
    assert steer.add("eth1", [(51966, 0), (51967, 1)], record) == 4
    assert len(nic.rules) == 5
    assert steer.remove("eth1", record) == 4
    assert list(nic.rules.values()) == [("IPv4", "53", "1")]
    assert not record.exists()
    assert steer.remove("eth1", record) == 0


@pytest.mark.parametrize(("port", "queue"), [("519", "0"), ("51966", "10"), ("51966", "1")])
def test_remove__leaves_a_foreign_rule_with_our_number(
    nic: Nic, tmp_path: Path, port: str, queue: str
) -> None:
    """Our rules are gone (ethtool -K ntuple off), and another rule has their numbers."""
    record = tmp_path / "steering"
    steer.add("eth1", [(51966, 0)], record)
    nic.rules.clear()
    nic.run("-N", "eth1", "flow-type", "udp4", "dst-port", port, "action", queue)
    assert steer.remove("eth1", record) == 0
    assert list(nic.rules.values()) == [("IPv4", port, queue)]


def test_add__is_remembered_if_it_is_killed(
    nic: Nic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "steering"

    def killed(*args: str) -> str | None:
        if nic.rules:
            raise KeyboardInterrupt
        return nic.run(*args)

    monkeypatch.setattr(steer, "_run", killed)
    with pytest.raises(KeyboardInterrupt):
        steer.add("eth1", [(51966, 0)], record)
    monkeypatch.setattr(steer, "_run", nic.run)
    assert steer.remove("eth1", record) == 1
    assert not nic.rules

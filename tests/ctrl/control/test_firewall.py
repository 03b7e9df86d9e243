"""Tests which firewall is found to drop the port, and the command that lets it pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from careful.control.host import firewall

RULESET = """table inet filter {
	set others {
		type ipv4_addr
	}
	chain in {
		type filter hook input priority filter; policy %s;
		ct state established,related accept
		iif "lo" accept
		tcp dport { 22, 51977 } accept
		%s
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
	chain out {
		type filter hook output priority filter; policy %s;
	}
}"""
DROPS = "nft insert rule inet filter in udp dport 51977 accept"


def fake(folder: Path, program: str, text: str) -> None:
    path = folder / program
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def nft(programs: Path, *given: str) -> tuple[str, str] | None:
    fake(programs, "nft", f"/bin/cat <<'end'\n{RULESET % given}\nend")
    return firewall.drops(51977, "eth1")


@pytest.mark.parametrize(
    ("policy", "rule", "command"),
    [
        ("drop", "", DROPS),
        ("accept", "", ""),
        ("accept", "udp dport { 53, 51977 } counter packets 0 bytes 0 drop", DROPS),
        ("accept", "udp dport 51978 drop", ""),
        ("accept", 'iifname "eth1" log prefix "no: " reject with icmpx admin-prohibited', DROPS),
        ("accept", 'iifname != "eth1" drop', ""),
        ("accept", "ip saddr 10.0.0.1 drop", ""),
        ("accept", "drop", DROPS),
        ("drop", "udp dport 51970-51980 accept", ""),
        ("drop", "udp dport != 51977 accept", DROPS),
        ("drop", 'iifname { "eth0", "eth1" } accept', ""),
        ("drop", 'iifname "eth0" accept', DROPS),
        ("drop", "ip saddr 10.77.0.0/16 accept", ""),
    ],
)
def test_firewall__nft_incoming(programs: Path, policy: str, rule: str, command: str) -> None:
    found = nft(programs, policy, rule, "accept")
    assert (found[1] if found else "") == command
    if found:
        assert found[0].startswith("nft drops UDP port 51977 (table inet filter, chain in: ")


def test_firewall__nft_outgoing(programs: Path) -> None:
    found = nft(programs, "accept", "", "drop")
    assert found
    assert found[1] == "nft insert rule inet filter out udp sport 51977 accept"


@pytest.mark.parametrize(
    ("zone", "allowed", "command"),
    [
        ("public", False, "firewall-cmd --zone=public --add-port=51977/udp"),
        ("public", True, ""),
        ("trusted", False, ""),
    ],
)
def test_firewall__firewalld(programs: Path, zone: str, allowed: bool, command: str) -> None:
    """nft shows firewalld's chains, too; a rule there is lost when firewalld reloads."""
    query = "echo yes" if allowed else "echo no; exit 1"
    answers = (
        f"--state) echo running;; --get-zone*) exit 2;; --get-def*) echo {zone};; *) {query};;"
    )
    fake(programs, "firewall-cmd", f'case "$1" in {answers} esac')
    found = nft(programs, "drop", "", "accept")
    assert (found[1] if found else "") == command


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("Status: active\nDefault: deny (incoming), allow (outgoing)", "ufw allow 51977/udp"),
        ("Status: active\nDefault: allow (incoming), allow (outgoing)", ""),
        ("Status: active\n51977/udp                  ALLOW IN    Anywhere", ""),
        ("Status: active\n51977/tcp                  ALLOW IN    Anywhere", "ufw allow 51977/udp"),
        ("Status: inactive", ""),
    ],
)
def test_firewall__ufw(programs: Path, said: str, command: str) -> None:
    fake(programs, "ufw", f"echo '{said}'")
    found = firewall.drops(51977, "eth1")
    assert (found[1] if found else "") == command

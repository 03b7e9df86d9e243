"""Tests which firewall can drop the port."""

from __future__ import annotations

from pathlib import Path

import pytest
from careful.control import host_checks

RULESET = """table inet filter {
	chain input {
		type filter hook input priority filter; policy accept;
		udp dport { 53, 51977 } counter packets 0 bytes 0 drop
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
	chain output {
		type filter hook output priority filter; policy %s;
	}
}"""


@pytest.mark.parametrize(
    ("program", "answer", "command"),
    [
        ("firewall-cmd", "running", "firewall-cmd --add-port=51977/udp"),
        ("firewall-cmd", "not running", ""),
        ("ufw", "Status: active", "ufw allow 51977/udp"),
        ("nft", RULESET % "accept", "nft insert rule inet filter input udp dport 51977 accept"),
        ("nft", RULESET.replace("51977", "51978") % "drop", "policy drop;): nft insert rule"),
        ("nft", RULESET.replace("51977", "51978") % "accept", ""),
    ],
)
def test_firewall__of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, answer: str, command: str
) -> None:
    path = tmp_path / program
    path.write_text(f"#!/bin/sh\n/bin/cat <<'end'\n{answer}\nend\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said = host_checks.firewall(51977)
    assert command in said
    assert bool(said) == bool(command)

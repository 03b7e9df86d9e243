"""Which firewall of this host drops careful's port, and the command that lets it pass."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

_COMMAND_S = 5.0
#: Conditions that careful's datagrams do not meet, or not the first one.
_OTHERS = re.compile(
    r"\b(ct (state|status)|tcp|icmp|icmpv6|igmp|sctp|esp|ah|fib|pkttype|th sport)\b"
)
#: Words of a rule that are no condition.
_PLAIN = re.compile(
    r'meta l4proto udp|counter packets \d+ bytes \d+|counter|log( prefix "[^"]*")?( level \w+)?'
    r'|comment "[^"]*"|limit rate \S+( burst \d+ \w+)?|reject( with .*)?|drop'
)


@dataclass
class _Chain:
    """A chain of the packets that come in or go out."""

    table: str
    name: str
    way: str = ""
    policy: str = "accept"
    verdict: str = ""  # of the first rule that decides


def drops(port: int, ifname: str) -> tuple[str, str] | None:
    """Returns what drops the port on the interface, and the command that lets it pass, or None."""
    if _output("firewall-cmd", "--state").strip() == "running":
        zone = _output("firewall-cmd", f"--get-zone-of-interface={ifname}").strip()
        zone = zone or _output("firewall-cmd", "--get-default-zone").strip()
        if zone == "trusted" or _output(
            "firewall-cmd", f"--zone={zone}", f"--query-port={port}/udp"
        ):
            return None
        said = f"firewalld runs, and its zone {zone} drops UDP port {port}"
        return said, f"firewall-cmd --zone={zone} --add-port={port}/udp"
    ufw = _output("ufw", "status", "verbose")
    if "Status: active" in ufw:
        if "allow (incoming)" in ufw or re.search(rf"^{port}(/udp)?\s.*ALLOW", ufw, re.M):
            return None
        return f"ufw is active, and drops UDP port {port}", f"ufw allow {port}/udp"
    for one in _chains(_output("nft", "list", "ruleset"), port, ifname):
        if (one.verdict or f"policy {one.policy}") not in ("accept", "policy accept"):
            said = f"nft drops UDP port {port} (table {one.table}, chain {one.name}: "
            where = "dport" if one.way == "input" else "sport"
            accept = f"nft insert rule {one.table} {one.name} udp {where} {port} accept"
            return f"{said}{one.verdict or f'policy {one.policy}'})", accept
    return None


def _chains(ruleset: str, port: int, ifname: str) -> Iterator[_Chain]:
    """Yields the chains that a datagram for careful passes."""
    table, chain = "", None
    for line in map(str.strip, ruleset.splitlines()):
        if line.startswith("table "):
            table = " ".join(line.split()[1:3])
        elif line.startswith("chain "):
            chain = _Chain(table, line.split()[1])
        elif chain and (found := re.match(r"type filter hook (\w+) .*policy (\w+)", line)):
            chain.way, chain.policy = found[1], found[2]
        elif chain and line == "}":
            if chain.way in ("input", "output"):
                yield chain
            chain = None
        elif chain and chain.way and not chain.verdict:
            chain.verdict = _verdict(line, chain.way, port, ifname)


def _verdict(rule: str, way: str, port: int, ifname: str) -> str:
    """Returns what a rule decides for the port: "accept", the rule if it drops, or ""."""
    if _OTHERS.search(rule):
        return ""
    left = rule
    for kind, given in re.findall(
        r"\b((?:udp|th) [ds]port|[io]ifn?a?m?e?) ((?:!= )?(?:\{.*?\}|\S+))", rule
    ):
        values = re.findall(r"[\w.-]+", given.removeprefix("!= "))
        found = _has_port(values, port) if "port" in kind else ifname in values
        if found == given.startswith("!="):
            return ""
        left = left.replace(f"{kind} {given}", "")
    if re.search(r"\baccept\b", left):
        return "accept"  # perhaps only for some addresses
    is_bare = not _PLAIN.sub("", left).strip()
    return rule if is_bare and re.search(r"\b(drop|reject)\b", left) else ""


def _has_port(values: list[str], port: int) -> bool:
    for one in values:
        low, _, high = one.partition("-")
        if low.isdecimal() and int(low) <= port <= int(high or low):
            return True
    return False


def _output(*command: str) -> str:
    """Returns the output of a command; "" if it is missing, fails, or needs root."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, cwd="/", capture_output=True, timeout=_COMMAND_S)
        return "" if done.returncode else done.stdout.decode(errors="replace")
    return ""

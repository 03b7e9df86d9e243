"""Finds the firewall of this host that drops careful's port, and the command that opens it."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress

_COMMAND_S = 5.0
#: Conditions that a first datagram for careful does not meet.
_OTHERS = re.compile(r"\b(ct (state|status)|tcp|icmp|icmpv6|igmp|sctp|esp|fib|pkttype)\b")
#: Parts of a rule that exempt no datagram of careful.
_PLAIN = re.compile(
    r'meta l4proto udp|counter packets \d+ bytes \d+|counter|log( prefix "[^"]*")?( level \w+)?'
    r'|comment "[^"]*"|limit rate \S+( burst \d+ \w+)?|reject( with .*)?|drop'
)
#: Conditions on ports and interfaces.
_MATCH = re.compile(r"\b((?:udp|th) [ds]port|[io]if(?:name)?) ((?:!= )?(?:\{.*?\}|\S+))")


def drops(port: int, ifname: str) -> tuple[str, str] | None:
    """Returns what drops the port on the interface, and the command that opens it, or None."""
    if _output("firewall-cmd", "--state").strip() == "running":
        zone = _output("firewall-cmd", f"--get-zone-of-interface={ifname}").strip()
        zone = zone or _output("firewall-cmd", "--get-default-zone").strip()
        query = f"--zone={zone}", f"--query-port={port}/udp"
        if zone == "trusted" or _output("firewall-cmd", *query):
            return None
        text = f"firewalld runs, and its zone {zone} drops UDP port {port}"
        return text, f"firewall-cmd --zone={zone} --add-port={port}/udp"
    ufw = _output("ufw", "status", "verbose")
    if "Status: active" in ufw:
        if "allow (incoming)" in ufw or re.search(rf"^{port}(/udp)?\s.*ALLOW", ufw, re.M):
            return None
        return f"ufw is active, and drops UDP port {port}", f"ufw allow {port}/udp"
    return _nft(_output("nft", "list", "ruleset"), port, ifname)


def _nft(ruleset: str, port: int, ifname: str) -> tuple[str, str] | None:
    """Returns the first chain that drops a datagram for careful, as drops() does."""
    table = chain = hook = verdict = policy = ""
    for line in map(str.strip, ruleset.splitlines()):
        if line.startswith("table "):
            table = " ".join(line.split()[1:3])
        elif line.startswith("chain "):
            chain, hook, verdict = line.split()[1], "", ""
        elif match := re.match(r"type filter hook (input|output) .*(policy \w+)", line):
            hook, policy = match[1], match[2]
        elif hook and line == "}":
            reason = verdict or policy
            if reason not in ("accept", "policy accept"):
                where = "dport" if hook == "input" else "sport"
                accept = f"nft insert rule {table} {chain} udp {where} {port} accept"
                return f"nft drops UDP port {port} (table {table}, chain {chain}: {reason})", accept
            hook = ""
        elif hook:
            verdict = verdict or _verdict(line, port, ifname)
    return None


def _verdict(rule: str, port: int, ifname: str) -> str:
    """Returns a rule's verdict on the port: "accept", the rule if it drops, or ""."""
    if _OTHERS.search(rule):
        return ""
    rest = rule
    for kind, condition in _MATCH.findall(rule):
        values = re.findall(r"[\w.-]+", condition.removeprefix("!= "))
        ranges = [value.partition("-") for value in values if value.replace("-", "").isdecimal()]
        has_port = any(int(low) <= port <= int(high or low) for low, _, high in ranges)
        if (has_port if "port" in kind else ifname in values) == condition.startswith("!="):
            return ""
        rest = rest.replace(f"{kind} {condition}", "")
    if re.search(r"\baccept\b", rest):
        return "accept"  # perhaps only for some addresses
    is_bare = not _PLAIN.sub("", rest).strip()
    return rule if is_bare and re.search(r"\b(drop|reject)\b", rest) else ""


def _output(*command: str) -> str:
    """Returns the output of a command; "" if it is missing, fails, or needs root."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, cwd="/", capture_output=True, timeout=_COMMAND_S)
        return "" if done.returncode else done.stdout.decode(errors="replace")
    return ""

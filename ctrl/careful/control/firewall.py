"""Which firewall of this host drops careful's port, and the command that lets it pass."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress

_COMMAND_S = 5.0
#: Conditions that careful's datagrams do not meet, or not the first one.
_OTHERS = re.compile(r"\b(ct (state|status)|tcp|icmp|icmpv6|igmp|sctp|esp|fib|pkttype)\b")
#: Words of a rule that are no condition.
_PLAIN = re.compile(
    r'meta l4proto udp|counter packets \d+ bytes \d+|counter|log( prefix "[^"]*")?( level \w+)?'
    r'|comment "[^"]*"|limit rate \S+( burst \d+ \w+)?|reject( with .*)?|drop'
)
#: Conditions on ports and interfaces.
_MATCH = re.compile(r"\b((?:udp|th) [ds]port|[io]if(?:name)?) ((?:!= )?(?:\{.*?\}|\S+))")


def drops(port: int, ifname: str) -> tuple[str, str] | None:
    """Returns what drops the port on the interface, and the command that lets it pass, or None."""
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
    table = chain = way = verdict = policy = ""
    for line in map(str.strip, ruleset.splitlines()):
        if line.startswith("table "):
            table = " ".join(line.split()[1:3])
        elif line.startswith("chain "):
            chain, way, verdict = line.split()[1], "", ""
        elif found := re.match(r"type filter hook (input|output) .*(policy \w+)", line):
            way, policy = found[1], found[2]
        elif way and line == "}":
            why = verdict or policy
            if why not in ("accept", "policy accept"):
                where = "dport" if way == "input" else "sport"
                accept = f"nft insert rule {table} {chain} udp {where} {port} accept"
                return f"nft drops UDP port {port} (table {table}, chain {chain}: {why})", accept
            way = ""
        elif way:
            verdict = verdict or _verdict(line, port, ifname)
    return None


def _verdict(rule: str, port: int, ifname: str) -> str:
    """Returns what a rule decides for the port: "accept", the rule if it drops, or ""."""
    if _OTHERS.search(rule):
        return ""
    left = rule
    for kind, given in _MATCH.findall(rule):
        values = re.findall(r"[\w.-]+", given.removeprefix("!= "))
        spans = [one.partition("-") for one in values if one.replace("-", "").isdecimal()]
        has_port = any(int(low) <= port <= int(high or low) for low, _, high in spans)
        if (has_port if "port" in kind else ifname in values) == given.startswith("!="):
            return ""
        left = left.replace(f"{kind} {given}", "")
    if re.search(r"\baccept\b", left):
        return "accept"  # perhaps only for some addresses
    is_bare = not _PLAIN.sub("", left).strip()
    return rule if is_bare and re.search(r"\b(drop|reject)\b", left) else ""


def _output(*command: str) -> str:
    """Returns the output of a command; "" if it is missing, fails, or needs root."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, cwd="/", capture_output=True, timeout=_COMMAND_S)
        return "" if done.returncode else done.stdout.decode(errors="replace")
    return ""

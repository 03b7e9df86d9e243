"""Finds the route of careful's own packets: an `ip rule` can depend on protocol and ports."""

from __future__ import annotations

import errno
import json
import socket
import subprocess

from careful.address import Address
from careful.control.checks.check_result import Finding, ok, unknown, warn
from careful.errors import CarefulError

#: A number, because `ip` knows the name only where /etc/protocols is installed.
_UDP = ("ipproto", str(socket.IPPROTO_UDP))


def _hop(address: Address, *packet: str) -> tuple[str, str]:
    """Returns the next hop of a packet, and the source address that the kernel chooses.

    packet: more words for `ip route get`, such as a protocol and ports.
    """
    command = ["ip", "-j", "route", "get", address.ip, *packet]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    if done.returncode:
        reason = " ".join(done.stderr.split()).removeprefix("RTNETLINK answers: ")
        raise CarefulError(errno.ENETUNREACH, reason, str(address))
    route = json.loads(done.stdout)[0]
    gateway = route.get("gateway") or route.get("via", {}).get("host")
    return route["dev"] + (f" via {gateway}" if gateway else ""), route.get("prefsrc", "")


def check(address: Address, host: str, port: int, ifname: str) -> Finding:
    """Compares the route of a UDP packet with that of frames and with that of other packets.

    host: the peer's name for the finding; port, ifname: those of the instance's socket.
    """
    udp = [*_UDP, "sport", str(port), "dport", str(address.port or port)]
    packets, packet = f"UDP packets from port {port} to {host}", ""
    try:
        if source := _hop(address, *udp, "oif", ifname)[1]:
            udp = ["from", source, *udp]
        packet, frames = _hop(address, *udp)[0], _hop(address, *udp, "oif", ifname)[0]
        if packet == frames:
            plain = _hop(address)[0]
            more = "" if plain == packet else f"; by an ip rule, other packets leave by {plain}"
            return ok("routing", f"frames and {packets} leave by {packet}{more}")
        text = f"{packets} leave by {packet}, but frames by {frames}"
    except CarefulError as error:
        if packet:
            return ok("routing", f"frames and {packets} leave by {packet}, by an ip rule")
        text = f"the kernel has no route for {packets}: {error.reason}"
    except OSError:
        return unknown("routing", "needs `ip` of iproute2")
    commands = f"`ip route get {address.ip} {' '.join(udp)}` and `ip rule` show why"
    return warn("routing", text, f"{commands}; change that rule, or the table that it names")

"""Checks the path to another host: route, firewall, session, frames both ways."""

from __future__ import annotations

import errno
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from careful._abi import lib
from careful.address import Address
from careful.control import packet_route
from careful.control.check_result import Finding, fail, ok, unknown, warn
from careful.control.instances import Instance
from careful.daemon.client import Client
from careful.errors import LET_IN, CarefulError

_CONNECT_S, _REPLY_S, _COMMAND_S = 5.0, 3.0, 5.0
_PING_MS, _PINGS, _SMALL_BYTES = 300, 3, 128
#: Errors of a session that the peer lost by a restart.
_OVER = errno.ECONNRESET, errno.ENOTCONN
_XDP = "`carefulctl doctor IFACE` there says whether its XDP program is on the interface"


def look(host: str, addresses: list[Address], instance: Instance) -> Iterator[Finding]:
    """Tries each address of a host through the instance; `host` is its name in findings."""
    for address in addresses:
        named = host if host == str(address) else f"{host} ({address})"
        with Client(instance.socket, f"carefuld of {instance.name}") as client:
            info = client.info()
            yield packet_route.check(address, named, info.port, instance.ifname)
            theirs = address.port or info.port
            try:
                peer = client.connect(address, named, _CONNECT_S).peer
                yield ok("host", f"{named} answers on UDP port {theirs}")
                code = _answer(client, peer, named)
                if code in _OVER:  # it restarted, and only data finds out
                    peer = client.connect(address, named, _CONNECT_S).peer
                    code = _answer(client, peer, named)
                yield _frames(client, peer, named, info.device.mtu, code)
            except CarefulError as error:
                text, advice = str(error), f"`ip route get {address.ip}`; there: carefulctl status"
                if error.errno == errno.ETIMEDOUT:
                    text = f"{named} answers nothing on UDP port {theirs}: carefuld does not run "
                    text += f"there, or a firewall drops the port{firewall(info.port)}"
                    advice = f"there: carefulctl status, then {LET_IN.format(port=theirs)}"
                yield fail("host", text, advice)


def firewall(port: int) -> str:
    """Names what can drop the port on this host, with the command that lets it pass."""
    if _output("firewall-cmd", "--state").strip() == "running":
        return f"; here firewalld runs: firewall-cmd --add-port={port}/udp"
    if _output("ufw", "status").startswith("Status: active"):
        return f"; here ufw is active: ufw allow {port}/udp"
    dropping = rf"hook (?:in|out)put.* policy drop|udp [ds]port\b.*\b{port}\b.* (?:drop|reject)"
    found = re.search(rf"^.*(?:{dropping}).*$", _output("nft", "list", "ruleset"), re.M)
    accept = f"nft insert rule inet filter input udp dport {port} accept"
    return f"; here nft drops UDP ports ({found[0].strip()}): {accept}" if found else ""


def _output(*command: str) -> str:
    """Returns the output of a command; "" if it is missing, fails, or needs root."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, cwd="/", capture_output=True, timeout=_COMMAND_S)
        return "" if done.returncode else done.stdout.decode(errors="replace")
    return ""


def _frames(client: Client, peer: int, named: str, mtu: int, answer: int) -> Finding:
    """Reports which frame sizes pass, in each direction; answer: what _answer() returned."""
    while (code := _ping(client, peer, mtu)) == errno.EMSGSIZE:
        mtu -= 2  # a ping fits one buffer
    if code and _ping(client, peer, _SMALL_BYTES):
        text = f"control messages pass to {named}, but frames do not arrive there"
        return fail("frames", text, f"{_XDP}; a switch on the way may drop them")
    if code:
        text = f"frames of {_SMALL_BYTES} bytes arrive at {named}, but of {mtu} do not: a link on "
        return warn("frames", f"{text}the way has a smaller MTU", "carefulctl measure pathchar")
    if answer == errno.EAGAIN:
        return unknown("frames", f"frames pass to {named}; others measure the way back now")
    if answer not in (0, errno.ENOSYS):  # a program that owns its queue refuses, in a frame
        text = f"frames pass one way only: they reach {named}, but its frames do not arrive here"
        return fail("frames", text, "see XDP above; a switch on the way may drop them")
    return ok("frames", f"full frames (MTU {mtu}) pass to {named}, and its answers come back")


def _answer(client: Client, peer: int, named: str) -> int:
    """Asks for a frame and its answer; returns 0 or an errno."""
    try:
        args = [1, 0, 0, 0]
        client.call(lib.CAREFUL_IPC_MEASURE, named, peer=peer, args=args, timeout_s=_REPLY_S)
    except CarefulError as error:
        return error.errno or errno.EIO
    return 0


def _ping(client: Client, peer: int, size_bytes: int) -> int:
    """Pings until the peer's XDP answers with a control message; returns 0 or an errno."""
    code, args = 0, [lib.CAREFUL_STAGE_NET_RX, 0, _PING_MS, 0]
    for _ in range(_PINGS):
        try:
            client.call(lib.CAREFUL_IPC_PING, "", peer=peer, bytes=size_bytes, args=args)
            return 0
        except CarefulError as error:
            code = error.errno or errno.EIO
    return code

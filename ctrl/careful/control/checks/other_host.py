"""Checks the path to another host: route, firewall, session, frames both ways."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from careful._abi import lib
from careful.address import Address
from careful.control.checks import packet_route
from careful.control.checks.check_result import FAIL, WARN, Finding, fail, ok, unknown, warn
from careful.control.host import firewall
from careful.control.instance.instances import Instance
from careful.daemon.client import Client
from careful.errors import LET_IN, CarefulError

_CONNECT_S, _REPLY_S = 5.0, 3.0
_PING_MS, _PINGS, _SMALL_BYTES = 300, 3, 128
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
                for _ in range(2):  # after a restart only data renews the session
                    peer = client.connect(address, named, _CONNECT_S).peer
                    finding = _frames(client, peer, named, info.device.mtu)
                    if finding and finding.state not in (FAIL, WARN):
                        break
                if finding:
                    yield ok("host", f"{named} answers on UDP port {theirs}")
                yield finding or _blocked(named, info.port, theirs, instance.ifname)
            except CarefulError as error:
                text, advice = str(error), f"`ip route get {address.ip}`; there: carefulctl status"
                if error.errno == errno.ETIMEDOUT:
                    text = f"{named} does not answer on UDP port {theirs}: carefuld does not run "
                    text += "there, or a firewall drops the port"
                    if dropping := firewall.drops(info.port, instance.ifname):
                        text += f"; here {dropping[0]}: {dropping[1]}"
                    advice = f"there: carefulctl status, then {LET_IN.format(port=theirs)}"
                yield fail("host", text, advice)


def _blocked(named: str, port: int, theirs: int, ifname: str) -> Finding:
    """Returns the failure of control messages that a firewall drops while frames pass."""
    text = f"frames pass to {named} and back, but control messages do not: a firewall at either "
    text += f"end (after XDP) or on the way drops UDP port {theirs}"
    advice = f"there: {LET_IN.format(port=theirs)}"
    if dropping := firewall.drops(port, ifname):
        text, advice = f"{text}; here {dropping[0]}", f"here: {dropping[1]}; {advice}"
    return fail("control", text, advice)


def _frames(client: Client, peer: int, named: str, mtu: int) -> Finding | None:
    """Reports which frame sizes pass, in each direction; None: control messages do not pass.

    A session that is up sends no such message. But XDP passes a ping on, through the firewall.
    """
    while (code := _ping(client, peer, mtu)) == errno.EMSGSIZE:
        mtu -= 2  # a ping fits one buffer
    if code and _ping(client, peer, _SMALL_BYTES):
        if _answer(client, peer, named) in (0, errno.ENOSYS):
            return None
        text = f"control messages pass to {named}, but frames do not arrive there"
        return fail("frames", text, f"{_XDP}; a switch on the way may drop them")
    if code:
        text = f"frames of {_SMALL_BYTES} bytes arrive at {named}, but not those of {mtu}: a link "
        return warn("frames", f"{text}on the way has a smaller MTU", "carefulctl measure pathchar")
    answer = _answer(client, peer, named)
    if answer == errno.EAGAIN:
        text = f"frames pass to {named}; the way back is busy with another measurement"
        return unknown("frames", text)
    if answer not in (0, errno.ENOSYS):  # ENOSYS comes in a frame, too
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

"""Interfaces, routes and queueing disciplines, through netlink.

The only module that imports pyroute2. It changes two things: it sets an interface up, and it
removes the root pfifo with our handle that carefuld installs on a veth.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from careful.address import Address
from careful.errors import CarefulError

#: Major and minor of our qdisc: ca00:0.
QDISC_HANDLE = 0xCA00 << 16

_SCOPE_LINK = 253  # RT_SCOPE_LINK
_SCOPE_GLOBAL = 0
_ALTNAME_BYTES = 128  # ALTIFNAMSIZ
_HOST_BITS = 32  # a network of one address has no neighbours
_LO = 1  # index of lo in each network namespace

_CONF = Path("/proc/sys/net/ipv4/conf")
#: Shows the interfaces of the network namespace that mounted it.
_SYSFS = Path("/sys/class/net")

#: pyroute2's names for the values of XDP_ATTACHED.
_XDP_MODES = {
    "xdp": "native",
    "xdpgeneric": "generic",
    "xdpoffload": "offloaded",
    "xdpmulti": "several",
}


@dataclass(frozen=True)
class Link:
    """An interface.

    Attributes:
        index: its number.
        name: its name.
        mtu: bytes.
        up: whether it is set up.
        carrier: whether the other end is there.
        kind: veth, bridge ...; "" for a hardware device.
        loopback: whether it is the loopback.
        xdp_program: id of the XDP program on it, or None.
        xdp_mode: native, generic, offloaded or several; "" for none.
    """

    index: int
    name: str
    mtu: int
    up: bool
    carrier: bool
    kind: str
    loopback: bool
    xdp_program: int | None
    xdp_mode: str


@dataclass(frozen=True)
class Qdisc:
    """The root queueing discipline of an interface."""

    kind: str
    handle: int

    @property
    def is_ours(self) -> bool:
        return self.handle == QDISC_HANDLE


#: A socket, a message or an attribute: pyroute2 has no types.
Netlink = Any


@contextmanager
def _netlink(what: str) -> Iterator[Netlink]:
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        with IPRoute() as route:
            yield route
    except NetlinkError as error:
        raise CarefulError(int(error.code), "", what) from None


def _attribute(message: Netlink, name: str) -> Netlink:
    return message.get_attr(name) if message is not None else None


def _link(message: Netlink) -> Link:
    xdp = _attribute(message, "IFLA_XDP")
    attached = _attribute(xdp, "IFLA_XDP_ATTACHED") or 0
    program = (
        _attribute(xdp, "IFLA_XDP_PROG_ID")
        or _attribute(xdp, "IFLA_XDP_DRV_PROG_ID")
        or _attribute(xdp, "IFLA_XDP_SKB_PROG_ID")
    )
    info = _attribute(message, "IFLA_LINKINFO")
    flags = message["flags"]
    return Link(
        index=message["index"],
        name=_attribute(message, "IFLA_IFNAME"),
        mtu=_attribute(message, "IFLA_MTU"),
        up=bool(flags & 1),
        carrier=bool(flags & 0x10000),
        kind=_attribute(info, "IFLA_INFO_KIND") or "",
        loopback=bool(flags & 8),
        xdp_program=program if attached else None,
        xdp_mode=_XDP_MODES.get(str(attached), ""),
    )


def spread_by_rps(ifname: str) -> dict[str, int]:
    """Counts the CPUs of each receive queue whose frames RPS spreads over several CPUs."""
    found = {}
    for path in sorted((_SYSFS / ifname / "queues").glob("rx-*/rps_cpus")):
        with suppress(OSError, ValueError):
            found[path.parent.name] = int(path.read_text().replace(",", ""), 16).bit_count()
    return {queue: cpus for queue, cpus in found.items() if cpus > 1}


def rps_text(ifname: str) -> str:
    """Describes what RPS does to generic XDP on the interface; "" if nothing."""
    spread = spread_by_rps(ifname)
    if not spread:
        return ""
    queues = ", ".join(f"{queue} over {cpus} CPUs" for queue, cpus in spread.items())
    return (
        f"RPS spreads {queues}: with generic XDP frames overtake each other, "
        "and a peer can send a few more than its window holds"
    )


def rps_advice(ifname: str) -> str:
    """Returns the commands that keep each queue's frames on one CPU."""
    paths = [_SYSFS / ifname / "queues" / queue / "rps_cpus" for queue in spread_by_rps(ifname)]
    return "; ".join(f"echo 1 > {path}" for path in paths)


def names() -> list[str]:
    """Returns the names of all interfaces here."""
    with _netlink("interfaces") as route:
        return [_attribute(one, "IFLA_IFNAME") for one in route.get_links()]


def find(ifname: str) -> Link:
    """Returns an interface by name. Raises CarefulError (ENODEV) if there is none."""
    found = None
    if 0 < len(ifname) < 16:
        with _netlink(ifname) as route:
            index = route.link_lookup(ifname=ifname)
            found = next(iter(route.get_links(*index)), None) if index else None
    elif 16 <= len(ifname) < _ALTNAME_BYTES:
        from pyroute2.netlink.exceptions import NetlinkError

        with _netlink(ifname) as route, suppress(NetlinkError):
            found = next(iter(route.link("get", altname=ifname)), None)
    if found is None:
        there = [name for name in names() if name != "lo"]
        advice = f"interfaces here: {', '.join(there)}" if there else "there is only lo"
        raise CarefulError(errno.ENODEV, f"no such interface; {advice}", ifname)
    return _link(found)


def master(link: Link) -> str | None:
    """Returns the bridge or bond of a port. A VRF does not count: it takes no frames."""
    with _netlink(link.name) as route:
        own = next(iter(route.get_links(link.index)))
        index = _attribute(own, "IFLA_MASTER")
        found = _link(next(iter(route.get_links(index)))) if index else None
    return found.name if found is not None and found.kind != "vrf" else None


def has_address(link: Link) -> bool:
    """Reports whether an interface has an address that is not link-local."""
    with _netlink(link.name) as route:
        return any(one["scope"] != _SCOPE_LINK for one in route.get_addr(index=link.index))


def _networks(route: Any, index: int | None = None) -> Iterator[tuple[int, IPv4Network]]:
    """Yields the IPv4 networks of an interface, or of all, with the interface's index."""
    for one in route.get_addr(family=socket.AF_INET, **({"index": index} if index else {})):
        text = f"{_attribute(one, 'IFA_LOCAL')}/{one['prefixlen']}"
        yield one["index"], IPv4Network(text, strict=False)


def in_same_subnet(link: Link) -> list[str]:
    """Returns other interfaces in its subnets, which answer ARP for its addresses."""
    with _netlink(link.name) as route:
        ours = [net for _, net in _networks(route, link.index) if net.prefixlen < _HOST_BITS]
        others = {
            index
            for index, net in _networks(route)
            if index != link.index and any(net.overlaps(one) for one in ours)
        }
        found = [_link(next(iter(route.get_links(index)))) for index in sorted(others)]
    return [
        one.name
        for one in found
        if one.up and not any(_arp_ignore(name) for name in ("all", one.name))
    ]


def _arp_ignore(name: str) -> int:
    with suppress(OSError, ValueError):
        return int((_CONF / name / "arp_ignore").read_text())
    return 0


def lo_has_address(link: Link) -> bool:
    """Reports whether lo has an address that other hosts can use, as on routers."""
    with _netlink(link.name) as route:
        return any(one["scope"] == _SCOPE_GLOBAL for one in route.get_addr(index=_LO))


def addresses(index: int) -> frozenset[str]:
    """Returns the addresses of an interface; none if it does not exist."""
    with _netlink(f"interface {index}") as route:
        return frozenset(
            str(_attribute(one, "IFA_LOCAL") or _attribute(one, "IFA_ADDRESS"))
            for one in route.get_addr(index=index)
        )


def root_qdisc(link: Link) -> Qdisc | None:
    """Returns the root qdisc of an interface, or None (noqueue)."""
    with _netlink(link.name) as route:
        for one in route.get_qdiscs(index=link.index):
            kind = _attribute(one, "TCA_KIND")
            if one["parent"] == 0xFFFFFFFF and kind != "noqueue":
                return Qdisc(kind, one["handle"])
    return None


def remove_our_qdisc(link: Link) -> bool:
    """Removes carefuld's pfifo, and no other qdisc; reports whether it was there."""
    qdisc = root_qdisc(link)
    if qdisc is None or not qdisc.is_ours:
        return False
    with _netlink(link.name) as route:
        route.tc("del", index=link.index, parent=0xFFFFFFFF, handle=QDISC_HANDLE)
    return True


def set_up(link: Link) -> None:
    """Sets an interface up."""
    with _netlink(link.name) as route:
        route.link("set", index=link.index, state="up")


def route_interface(address: Address) -> str:
    """Returns the interface of the route to a host. Raises CarefulError if there is no route."""
    from pyroute2.netlink.exceptions import NetlinkError

    with _netlink(str(address)) as route:
        try:
            more = {"oif": address.scope} if address.scope else {}
            found = route.route("get", dst=address.ip, family=int(address.family), **more)
        except NetlinkError as error:
            raise CarefulError(int(error.code), "no route to it", str(address)) from None
        index = _attribute(next(iter(found), None), "RTA_OIF")
        if index is None:
            raise CarefulError(errno.ENETUNREACH, "no route to it", str(address))
        return str(_attribute(next(iter(route.get_links(index))), "IFLA_IFNAME"))

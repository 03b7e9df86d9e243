"""Interfaces, routes and queueing disciplines, through netlink.

Changes two things: sets an interface up, and removes the root pfifo with our handle that carefuld
installs on a veth.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from careful.address import Address
from careful.control.host import netlink
from careful.errors import CarefulError

#: Major and minor of our qdisc: ca00:0.
QDISC_HANDLE = 0xCA00 << 16

_SCOPE_LINK = 253  # RT_SCOPE_LINK
_SCOPE_GLOBAL = 0
_NAME_BYTES = 16  # IFNAMSIZ
_ALTNAME_BYTES = 128  # ALTIFNAMSIZ
_HOST_BITS = 32  # a network of one address has no neighbours
_LO = 1  # index of lo in each network namespace

_CONF = Path("/proc/sys/net/ipv4/conf")
#: Shows the interfaces of the network namespace that mounted it.
_SYSFS = Path("/sys/class/net")

# Structures of linux/rtnetlink.h, linux/if_addr.h and linux/if_link.h, and numbers of attributes.
_IFINFO = struct.Struct("=4xiII")  # index, flags, mask of the flags that change
_IFADDR = struct.Struct("=BBBBI")  # family, prefix, flags, scope, index
_TC = struct.Struct("=4xiIII")  # index, handle, parent, info
_ROUTE = struct.Struct("=BB10x")  # family, prefix
_IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO = 3, 4, 10, 18
_IFLA_XDP, _IFLA_ALT_IFNAME = 43, 53
_INFO_KIND = 1
_XDP_ATTACHED = 2
_XDP_PROGRAMS = (4, 5, 6)  # of any mode, native, generic
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_TCA_KIND = 1
_RTA_DST, _RTA_OIF = 1, 4
_IFF_UP, _IFF_LOWER_UP = 1, 0x10000
_ROOT = 0xFFFFFFFF  # TC_H_ROOT

#: Values of IFLA_XDP_ATTACHED.
_XDP_MODES = {1: "native", 2: "generic", 3: "offloaded", 4: "several"}


@dataclass(frozen=True)
class Link:
    """An interface.

    Attributes:
        mtu: bytes.
        up: True if it is set up.
        carrier: True if the link to the other end works.
        kind: veth, bridge ...; "" for a hardware device.
        xdp_program: id of the XDP program on it, or None.
        xdp_mode: native, generic, offloaded or several; "" for none.
    """

    index: int
    name: str
    mtu: int
    up: bool
    carrier: bool
    kind: str
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


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Turns an OSError into a CarefulError about `what`."""
    try:
        yield
    except OSError as error:
        raise CarefulError(error.errno or errno.EIO, "", what) from None


def _number(value: bytes) -> int:
    return int.from_bytes(value, sys.byteorder)


def _text(value: bytes) -> str:
    return os.fsdecode(value.rstrip(b"\0"))


def _link(message: bytes) -> Link:
    index, flags, _ = _IFINFO.unpack_from(message)
    attributes = netlink.attributes(message[_IFINFO.size :])
    xdp = netlink.attributes(attributes.get(_IFLA_XDP, b""))
    attached = _number(xdp.get(_XDP_ATTACHED, b""))
    programs = (_number(xdp[mode]) for mode in _XDP_PROGRAMS if mode in xdp)
    return Link(
        index=index,
        name=_text(attributes[_IFLA_IFNAME]),
        mtu=_number(attributes[_IFLA_MTU]),
        up=bool(flags & _IFF_UP),
        carrier=bool(flags & _IFF_LOWER_UP),
        kind=_text(netlink.attributes(attributes.get(_IFLA_LINKINFO, b"")).get(_INFO_KIND, b"")),
        xdp_program=next(programs, None) if attached else None,
        xdp_mode=_XDP_MODES.get(attached, ""),
    )


def _get_link(index: int, attribute: bytes = b"") -> bytes:
    """Returns the kernel's message on an interface, named by its index or by an attribute."""
    return netlink.ask(netlink.GETLINK, _IFINFO.pack(index, 0, 0) + attribute)[0]


@dataclass(frozen=True)
class _InterfaceAddress:
    """An address of an interface."""

    index: int
    scope: int
    prefix: int
    family: int
    value: bytes

    def __str__(self) -> str:
        return socket.inet_ntop(self.family, self.value)


def _addresses(family: int = socket.AF_UNSPEC) -> Iterator[_InterfaceAddress]:
    """Yields the addresses of all interfaces."""
    for message in netlink.ask(netlink.GETADDR, _IFADDR.pack(family, 0, 0, 0, 0), netlink.DUMP):
        kind, prefix, _, scope, index = _IFADDR.unpack_from(message)
        if kind in (socket.AF_INET, socket.AF_INET6):
            attributes = netlink.attributes(message[_IFADDR.size :])
            value = attributes.get(_IFA_LOCAL) or attributes[_IFA_ADDRESS]
            yield _InterfaceAddress(index, scope, prefix, kind, value)


def spread_by_rps(ifname: str) -> dict[str, int]:
    """Returns the number of CPUs of each receive queue that RPS spreads over several CPUs."""
    cpus_by_queue = {}
    for path in sorted((_SYSFS / ifname / "queues").glob("rx-*/rps_cpus")):
        with suppress(OSError, ValueError):
            cpus_by_queue[path.parent.name] = int(path.read_text().replace(",", ""), 16).bit_count()
    return {queue: cpus for queue, cpus in cpus_by_queue.items() if cpus > 1}


def rps_text(ifname: str) -> str:
    """Describes the effect of RPS on generic XDP on the interface; "" if there is none."""
    spread = spread_by_rps(ifname)
    if not spread:
        return ""
    queues = ", ".join(f"{queue} over {cpus} CPUs" for queue, cpus in spread.items())
    return (
        f"RPS spreads {queues}: with generic XDP frames overtake each other, "
        "and a peer can send a few frames more than its window holds"
    )


def rps_advice(ifname: str) -> str:
    """Returns the commands that keep each queue's frames on one CPU."""
    paths = [_SYSFS / ifname / "queues" / queue / "rps_cpus" for queue in spread_by_rps(ifname)]
    return "; ".join(f"echo 1 > {path}" for path in paths)


def names() -> list[str]:
    """Returns the names of all interfaces here."""
    with _about("interfaces"):
        messages = netlink.ask(netlink.GETLINK, _IFINFO.pack(0, 0, 0), netlink.DUMP)
    return [_link(message).name for message in messages]


def find(ifname: str) -> Link:
    """Returns an interface by name. Raises CarefulError (ENODEV) if there is none."""
    name = os.fsencode(ifname) + b"\0"
    kind = _IFLA_IFNAME if len(name) <= _NAME_BYTES else _IFLA_ALT_IFNAME
    if 1 < len(name) <= _ALTNAME_BYTES:
        try:
            return _link(_get_link(0, netlink.attribute(kind, name)))
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.EINVAL, errno.ERANGE):
                raise CarefulError(error.errno or errno.EIO, "", ifname) from None
    others = [name for name in names() if name != "lo"]
    advice = f"interfaces here: {', '.join(others)}" if others else "there is only lo"
    raise CarefulError(errno.ENODEV, f"no such interface; {advice}", ifname)


def master(link: Link) -> str | None:
    """Returns the bridge or bond of a port, or None. A VRF does not count: it gets no frames."""
    with _about(link.name):
        own = netlink.attributes(_get_link(link.index)[_IFINFO.size :])
        upper = _link(_get_link(_number(own[_IFLA_MASTER]))) if _IFLA_MASTER in own else None
    return upper.name if upper is not None and upper.kind != "vrf" else None


def _addresses_of(index: int) -> list[_InterfaceAddress]:
    with _about(f"interface {index}"):
        return [address for address in _addresses() if address.index == index]


def has_address(link: Link) -> bool:
    """Reports whether an interface has an address that is not link-local."""
    return any(address.scope != _SCOPE_LINK for address in _addresses_of(link.index))


def in_same_subnet(link: Link) -> list[str]:
    """Returns the interfaces in the link's subnets that answer ARP for its addresses."""
    with _about(link.name):
        nets = [
            (address.index, IPv4Network(f"{address}/{address.prefix}", strict=False))
            for address in _addresses(socket.AF_INET)
        ]
        ours = [net for index, net in nets if index == link.index and net.prefixlen < _HOST_BITS]
        others = {
            index
            for index, net in nets
            if index != link.index and any(net.overlaps(own) for own in ours)
        }
        links = [_link(_get_link(index)) for index in sorted(others)]
    return [
        other.name
        for other in links
        if other.up and not any(_ignores_arp(name) for name in ("all", other.name))
    ]


def _ignores_arp(name: str) -> bool:
    with suppress(OSError, ValueError):
        return int((_CONF / name / "arp_ignore").read_text()) != 0
    return False


def lo_has_address() -> bool:
    """Reports whether lo has an address that other hosts can use, as on routers."""
    return any(address.scope == _SCOPE_GLOBAL for address in _addresses_of(_LO))


def addresses(index: int) -> frozenset[str]:
    """Returns the addresses of an interface; none if it does not exist."""
    return frozenset(map(str, _addresses_of(index)))


def root_qdisc(link: Link) -> Qdisc | None:
    """Returns the root qdisc of an interface, or None (noqueue)."""
    with _about(link.name):
        messages = netlink.ask(netlink.GETQDISC, _TC.pack(link.index, 0, 0, 0), netlink.DUMP)
    for message in messages:
        index, handle, parent, _ = _TC.unpack_from(message)
        kind = _text(netlink.attributes(message[_TC.size :])[_TCA_KIND])
        if index == link.index and parent == _ROOT and kind != "noqueue":
            return Qdisc(kind, handle)
    return None


def remove_our_qdisc(link: Link) -> bool:
    """Removes carefuld's pfifo, and no other qdisc; reports whether it existed."""
    qdisc = root_qdisc(link)
    if qdisc is None or not qdisc.is_ours:
        return False
    with _about(link.name):
        body = _TC.pack(link.index, QDISC_HANDLE, _ROOT, 0)
        netlink.ask(netlink.DELQDISC, body, netlink.ACK)
    return True


def set_up(link: Link) -> None:
    """Sets an interface up."""
    with _about(link.name):
        body = _IFINFO.pack(link.index, _IFF_UP, _IFF_UP)
        netlink.ask(netlink.NEWLINK, body, netlink.ACK)


def route_interface(address: Address) -> str:
    """Returns the interface of the route to a host. Raises CarefulError if there is no route."""
    target = socket.inet_pton(address.family, address.ip)
    body = _ROUTE.pack(address.family, 8 * len(target)) + netlink.attribute(_RTA_DST, target)
    if address.scope:
        body += netlink.attribute(_RTA_OIF, struct.pack("=I", address.scope))
    try:
        (answer,) = netlink.ask(netlink.GETROUTE, body)
    except OSError as error:
        raise CarefulError(error.errno or errno.EIO, "no route to host", str(address)) from None
    index = netlink.attributes(answer[_ROUTE.size :]).get(_RTA_OIF)
    if index is None:
        raise CarefulError(errno.ENETUNREACH, "no route to host", str(address))
    with _about(str(address)):
        return _link(_get_link(_number(index))).name

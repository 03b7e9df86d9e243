"""Settings, peers and programs of an instance, as carefuld's C structs report them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from careful._abi import CData, enum_names, ffi, lib
from careful.address import Address
from careful.control.options.config import Config
from careful.errors import meaning, shown
from careful.jsonout import Json
from careful.units import shown_time

#: Bytes of a frame that the MTU does not count.
ETHERNET_BYTES = 14

#: A peer may connect, or begin a new epoch, for so long before something is wrong.
_AWAY_MS = 2000

#: The origin of the XDP mode, in words.
DECIDED = {
    "option": "by --xdp",
    "driver": "the driver's",
    "pending": "for now; compared with generic when the first peer connects",
    "measured": "measured",
    "remembered": "remembered",
    "left": "not the driver's: a measurement failed, and carefuld could not return to the driver's",
}

#: The limit of the receive buffers, in words.
BOUNDS = {
    "umem": "UMEM buffers (--rx-buffers)",
    "fill_ring": "the fill ring",
    "rx_ring": "the XSK RX ring",
    "device_ring": "the device's RX ring (ethtool -G)",
    "backlog": "net.core.netdev_max_backlog",
}


def printable_text(data: CData) -> str:
    """Returns a NUL-terminated C array as printable text: a peer's name can hold any byte."""
    return shown(ffi.string(data).decode(errors="replace"))


def name_of(enum: str, prefix: str, value: int) -> str:
    """Returns the short name of an enum's value, or the number if it has none."""
    return enum_names(enum, prefix).get(value, str(value))


@dataclass(frozen=True)
class InEffect:
    """The settings of a running instance: `struct careful_info` without its counters."""

    ifname: str
    driver: str
    queue: int
    mtu_bytes: int
    xdp_mode: str
    xdp_by: str
    native_refused: str | None
    zerocopy: bool
    multibuffer: bool
    need_wakeup: bool
    hugepages: bool
    buffer_bytes: int
    frame_bytes: int
    umem_bytes: int
    receive_buffers: int
    receive_bound: str
    bounds_buffers: Mapping[str, int]
    port: int
    peers_max: int
    window_buffers: int
    update_threshold_buffers: int
    rx_buffers: int
    tx_buffers: int
    copyout_buffers: int
    copyout_used_buffers: int
    reserve_buffers: int
    reserve_free_buffers: int
    protocol: str
    repair: str
    wait: str
    spin_us: int
    keyed: bool
    io_uring_denied: str | None


@dataclass(frozen=True)
class PeerStatus:
    """A session with a peer: `struct careful_peer_info`, and its queue."""

    address: str
    node: str | None
    name: str
    state: str
    error: str | None
    slot: int
    credits_free: int
    credits_window: int
    window_buffers: int
    window_now_buffers: int
    burst: str
    burst_frames: int
    frame_bytes: int
    path_is_narrow: bool
    buffers_owed: int
    buffers_kept: int
    withholding: bool
    messages_out: int
    operations: int
    epochs: int
    wire_minor: int
    tx_frames: int
    tx_bytes: int
    rx_frames: int
    rx_bytes: int
    lost_here_frames: int
    lost_there_frames: int
    sent_again_frames: int
    asked_again_frames: int
    asked_silent_frames: int
    late_frames: int
    control_unheard: bool
    away_ms: int
    seal: str
    cipher: str | None
    queue: int

    @property
    def called(self) -> str:
        """The peer's name in careful.toml, else its own name, else its address."""
        return self.node or self.name or self.address

    @property
    def trouble(self) -> str:
        """The trouble with its session, and since when; "" if there is none."""
        begins = self.state in ("connecting", "renewing")
        is_wrong = self.state in ("stalled", "failed") or (begins and self.away_ms >= _AWAY_MS)
        if not (self.error or is_wrong):
            return ""
        text = self.state + (f" ({self.error})" if self.error else "")
        if self.away_ms:
            lacks = "session" if self.state == "failed" else "answer"
            text += f", no {lacks} for {shown_time(1e3 * self.away_ms)}"
        look = f": `carefulctl doctor {self.node or self.address}` finds out why"
        return text + (look if begins else "")


@dataclass(frozen=True)
class ProgramStatus:
    """A program that shares the interface: `struct careful_program_info`."""

    name: str
    pid: int
    stalled: bool
    operations: int
    unread: int
    unanswered: int
    handlers: int
    regions: int
    memory_bytes: int
    asked: int
    told: int


def counters(info: CData) -> dict[str, int]:
    """Returns all counters of a `struct careful_info` by name, including the device's."""
    totals = {
        name: int(info.counters[index])
        for index, name in enum_names("careful_counter", "CAREFUL_C_").items()
        if index < lib.CAREFUL_COUNTERS
    }
    for name, _ in ffi.typeof("struct careful_device_statistics").fields:
        totals[f"device_{name}"] = int(getattr(info.statistics, name))
    return totals


_CONVERTED: dict[str, Callable[[Any], object]] = {"int": int, "bool": bool, "str": printable_text}
_UNIT = re.compile("_(buffers|bytes|frames)$")


def _same(kind: type, *structs: CData) -> Json:
    """Returns the fields of a dataclass that C structs have under the same name, or without a unit.

    Numbers of enums are left out: the dataclass has their names.
    """
    values: Json = {}
    for field in fields(kind):
        for name, struct in product((field.name, _UNIT.sub("", field.name)), structs):
            value = getattr(struct, name, None)
            is_text = isinstance(value, ffi.CData) and ffi.typeof(value).kind == "array"
            is_same = value is not None and is_text == (field.type == "str")
            if is_same and field.type in _CONVERTED:
                values[field.name] = _CONVERTED[field.type](value)
                break
    return values


def peer(info: CData, instance: CData, config: Config) -> PeerStatus:
    """Converts a `struct careful_peer_info`; instance: the `struct careful_info` of its queue.

    The address has no port if the peer uses the instance's port.
    """
    # A peer that ended its session in order is no fault.
    ended = info.state == lib.CAREFUL_PEER_FAILED and info.last_errno == errno.ECONNRESET
    address = Address.from_sockaddr(bytes(ffi.buffer(ffi.addressof(info, "address"))))
    if address.port == instance.port:
        address = replace(address, port=0)
    cipher = name_of("careful_cipher", "CAREFUL_CIPHER_", info.cipher) if info.cipher else None
    return PeerStatus(
        address=str(address),
        node=config.node_at(address),
        state="ended" if ended else name_of("careful_peer_state", "CAREFUL_PEER_", info.state),
        error=meaning(info.last_errno) if info.last_errno and not ended else None,
        burst=name_of("careful_burst_verdict", "CAREFUL_BURST_", info.burst),
        path_is_narrow=bool(info.flags & lib.CAREFUL_PEER_IS_NARROW),
        withholding=bool(info.flags & lib.CAREFUL_PEER_IS_WITHHELD),
        control_unheard=bool(info.flags & lib.CAREFUL_PEER_IS_UNHEARD),
        seal=name_of("careful_seal", "CAREFUL_SEAL_", info.seal),
        cipher=cipher,
        queue=int(instance.device.queue),
        **_same(PeerStatus, info),
    )


def program(info: CData) -> ProgramStatus:
    """Converts a `struct careful_program_info`."""
    return ProgramStatus(**_same(ProgramStatus, info))


def in_effect(info: CData) -> InEffect:
    """Returns the settings in a `struct careful_info`."""
    device = info.device
    return InEffect(
        xdp_mode=name_of("careful_xdp_mode", "CAREFUL_XDP_", device.xdp_mode),
        xdp_by=name_of("careful_xdp_by", "CAREFUL_XDP_BY_", device.xdp_by),
        native_refused=printable_text(device.native_refused) or None,
        receive_bound=name_of("careful_bound", "CAREFUL_BOUND_", device.receive_bound),
        bounds_buffers={
            name: int(device.bounds[index])
            for index, name in enum_names("careful_bound", "CAREFUL_BOUND_").items()
            if index < lib.CAREFUL_BOUNDS and device.bounds[index]
        },
        protocol=name_of("careful_protocol", "CAREFUL_PROTOCOL_", info.protocol),
        repair=name_of("careful_repair", "CAREFUL_REPAIR_", info.repair),
        wait=name_of("careful_wait_mode", "CAREFUL_WAIT_", info.wait_mode),
        io_uring_denied=os.strerror(info.io_uring_denied) if info.io_uring_denied else None,
        **_same(InEffect, device, info),
    )


@dataclass(frozen=True)
class Effect:
    """The settings that every command through carefuld prints."""

    kernel: str
    driver: str
    xdp_mode: str
    zerocopy: bool
    window_buffers: int

    def as_dict(self) -> dict[str, object]:
        return dict(vars(self))


def effect(info: CData) -> Effect:
    """Returns the settings in a `struct careful_info` that measurements depend on."""
    now = in_effect(info)
    return Effect(os.uname().release, now.driver, now.xdp_mode, now.zerocopy, now.window_buffers)


def older(peers: Iterable[PeerStatus]) -> list[str]:
    """Returns a line for each peer with an older version of the wire than this host."""
    version, here = int(lib.CAREFUL_WIRE_VERSION), int(lib.CAREFUL_WIRE_MINOR)
    return [
        f"{peer.called} speaks wire {version}.{peer.wire_minor}, this host {version}.{here}: "
        "both use the older version"
        for peer in peers
        if peer.state == "up" and peer.wire_minor < here
    ]


def unheard(peers: Iterable[PeerStatus], port: int, master: str | None = None) -> list[str]:
    """Returns a line for each peer whose frames arrive, but none of its control messages.

    master: the bridge or bond of its interface, if any.
    """
    why = f"does a firewall of either host drop UDP port {port}?"
    if master:
        why = f"the interface is now a port of {master}, which receives them"
    return [
        f"frames of {peer.called} arrive, but no control messages: {why}"
        for peer in peers
        if peer.control_unheard
    ]


def narrow(peers: Iterable[PeerStatus]) -> list[str]:
    """Returns a line for each peer whose path has a smaller MTU than both ends."""
    return [
        f"frames to {peer.called} have at most {peer.frame_bytes} bytes: a link on the way allows "
        f"no more (path MTU {peer.frame_bytes - ETHERNET_BYTES})"
        for peer in peers
        if peer.path_is_narrow
    ]

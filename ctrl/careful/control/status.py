"""What is in effect on an instance, and what it counted: figures for people and programs.

Asks carefuld for its own view and reads the XDP program's counters from their map.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from careful._abi import enum_names, ffi, lib
from careful.address import Address
from careful.control import command_line, instances, links
from careful.control.config import Config
from careful.control.exports import parse
from careful.control.instances import Instance
from careful.daemon.client import Client
from careful.errors import CarefulError, meaning, shown

#: Bytes of a frame that the MTU does not count.
ETHERNET_BYTES = 14

#: Who decided on the XDP mode, in words.
DECIDED = {
    "option": "by --xdp",
    "driver": "the driver's",
    "pending": "the driver's; to be measured with the first peer",
    "measured": "measured",
    "remembered": "remembered",
    "left": "not the driver's: measuring failed, and so did the way back",
}

#: What an amount of receive buffers is bounded by, in words.
BOUNDS = {
    "umem": "UMEM buffers (--rx-buffers)",
    "fill_ring": "the fill ring",
    "rx_ring": "the XSK RX ring",
    "device_ring": "the device's RX ring (ethtool -G)",
    "backlog": "net.core.netdev_max_backlog",
}


def text(data: Any) -> str:
    """A NUL-terminated C array as text that can be printed: a peer's name may hold anything."""
    return shown(ffi.string(data).decode(errors="replace"))


def name_of(enum: str, prefix: str, value: int) -> str:
    """Short name of an enum's value, or the number where it has none."""
    return enum_names(enum, prefix).get(value, str(value))


def device(info: Any) -> dict[str, Any]:
    """What of a `struct careful_device_info` says how the interface is used."""
    return {
        "ifname": text(info.ifname),
        "driver": text(info.driver),
        "queue": info.queue,
        "mtu_bytes": info.mtu,
        "xdp_mode": name_of("careful_xdp_mode", "CAREFUL_XDP_", info.xdp_mode),
        "xdp_by": name_of("careful_xdp_by", "CAREFUL_XDP_BY_", info.xdp_by),
        "native_refused": text(info.native_refused) or None,
        "zerocopy": bool(info.zerocopy),
        "multibuffer": bool(info.multibuffer),
        "need_wakeup": bool(info.need_wakeup),
        "hugepages": bool(info.hugepages),
        "buffer_bytes": info.buffer_bytes,
        "frame_bytes": info.frame_bytes,
        "umem_bytes": info.umem_bytes,
        "receive_buffers": info.receive_buffers,
        "receive_bound": name_of("careful_bound", "CAREFUL_BOUND_", info.receive_bound),
        "bounds_buffers": {
            name: info.bounds[index]
            for index, name in enum_names("careful_bound", "CAREFUL_BOUND_").items()
            if index < lib.CAREFUL_BOUNDS and info.bounds[index]
        },
    }


def counters(info: Any) -> dict[str, int]:
    """All counters of a `struct careful_info` by name, the device's among them."""
    found = {
        name: int(info.counters[index])
        for index, name in enum_names("careful_counter", "CAREFUL_C_").items()
        if index < lib.CAREFUL_COUNTERS
    }
    for name, _ in ffi.typeof("struct careful_device_statistics").fields:
        found[f"device_{name}"] = int(getattr(info.statistics, name))
    return found


def peer(info: Any, port: int, config: Config) -> dict[str, Any]:
    """One `struct careful_peer_info`; its address without the instance's own port."""
    address = Address.from_sockaddr(bytes(ffi.buffer(ffi.addressof(info, "address"))))
    if address.port == port:
        address = replace(address, port=0)
    return {
        "address": str(address),
        "node": config.node_at(address),
        "name": text(info.name),
        "state": name_of("careful_peer_state", "CAREFUL_PEER_", info.state),
        "error": meaning(info.last_errno) if info.last_errno else None,
        "slot": info.slot,
        "credits_free": info.credits_free,
        "credits_window": info.credits_window,
        "window_buffers": info.window,
        "burst": name_of("careful_burst_verdict", "CAREFUL_BURST_", info.burst),
        "burst_frames": info.burst_frames,
        "frame_bytes": info.frame_bytes,
        "path_is_narrow": bool(info.flags & lib.CAREFUL_PEER_IS_NARROW),
        "buffers_owed": info.buffers_owed,
        "buffers_kept": info.buffers_kept,
        "withholding": bool(info.flags & lib.CAREFUL_PEER_IS_WITHHELD),
        "messages_out": info.messages_out,
        "operations": info.operations,
        "epochs": info.epochs,
        "wire_minor": info.wire_minor,
        "tx_frames": info.tx_frames,
        "tx_bytes": info.tx_bytes,
        "rx_frames": info.rx_frames,
        "rx_bytes": info.rx_bytes,
        "lost_here_frames": info.lost_here,
        "lost_there_frames": info.lost_there,
        "control_unheard": bool(info.flags & lib.CAREFUL_PEER_IS_UNHEARD),
        "seal": name_of("careful_seal", "CAREFUL_SEAL_", info.seal),
        "cipher": name_of("careful_cipher", "CAREFUL_CIPHER_", info.cipher)
        if info.cipher
        else None,
    }


def program(info: Any) -> dict[str, Any]:
    """One `struct careful_program_info`."""
    return {
        "name": text(info.name),
        "pid": info.pid,
        "stalled": bool(info.stalled),
        "operations": info.operations,
        "unread": info.unread,
        "unanswered": info.unanswered,
        "handlers": info.handlers,
        "regions": info.regions,
        "memory_bytes": info.memory_bytes,
        "asked": info.asked,
        "told": info.told,
    }


def in_effect(info: Any) -> dict[str, Any]:
    """How a `struct careful_info` says that an instance works; without what was counted."""
    return {
        **device(info.device),
        "port": info.port,
        "peers_max": info.peers_max,
        "window_buffers": info.window,
        "update_threshold_buffers": info.update_threshold,
        "rx_buffers": info.rx_buffers,
        "tx_buffers": info.tx_buffers,
        "copyout_buffers": info.copyout_buffers,
        "copyout_used_buffers": info.copyout_used,
        "reserve_buffers": info.reserve_buffers,
        "reserve_free_buffers": info.reserve_free,
        "protocol": name_of("careful_protocol", "CAREFUL_PROTOCOL_", info.protocol),
        "wait": name_of("careful_wait_mode", "CAREFUL_WAIT_", info.wait_mode),
        "spin_us": info.spin_us,
        "keyed": bool(info.keyed),
        "io_uring_denied": os.strerror(info.io_uring_denied) if info.io_uring_denied else None,
    }


@dataclass(frozen=True)
class Effect:
    """What every command that goes through carefuld echoes of it."""

    kernel: str
    driver: str
    xdp_mode: str
    zerocopy: bool
    window_buffers: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


def effect(info: Any) -> Effect:
    """The part of a `struct careful_info` that figures depend on."""
    found = device(info.device)
    return Effect(
        os.uname().release, found["driver"], found["xdp_mode"], found["zerocopy"], info.window
    )


def effect_of(instance: Instance) -> Effect:
    """The same, asked of a running instance."""
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        return effect(client.info())


def port_of(instance: Instance) -> int:
    """The UDP port of a running instance."""
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        return int(client.info().port)


def receive_buffers_of(instance: Instance) -> int:
    """R of a running instance's queue."""
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        return int(client.info().device.receive_buffers)


def program_detached(instance: Instance) -> bool:
    """Reports whether the XDP program of a running instance was taken off its interface.

    Raises:
        CarefulError: carefuld does not answer.
    """
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        return bool(client.info().statistics.program_detached)


def _xdp(instance: Instance) -> tuple[dict[str, int], str | None]:
    from careful.control import maps  # bcc and what it needs: of no use to a transfer

    try:
        return maps.xdp_counters(instance.name), None
    except CarefulError as error:
        return {}, str(error)


def exports(instance: Instance) -> list[dict[str, Any]]:
    """The directories that peers may read, or write, too."""
    given = command_line.read(instance.argv).export or ()
    return [{**asdict(one), "hosts": list(one.hosts)} for one in map(parse, given)]


#: What queues have each, and the instance as a whole in sum.
_SUMMED = (
    "peers_max",
    "receive_buffers",
    "rx_buffers",
    "tx_buffers",
    "copyout_buffers",
    "copyout_used_buffers",
    "reserve_buffers",
    "reserve_free_buffers",
    "umem_bytes",
)


def _total(each: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(one.get(name, 0) for one in each) for name in each[0]}


def _queue(found: dict[str, Any]) -> dict[str, Any]:
    """A line of one queue."""
    counted = {name: found["counters"][name] for name in ("rx_frames", "tx_frames")}
    return {"queue": found["queue"], "instance": found["instance"], "pid": found["pid"]} | {
        "port": found["port"],
        "peers": len(found["peers"]),
        "peers_max": found["peers_max"],
        **counted,
    }


def gather(instance: Instance, config: Config) -> dict[str, Any]:
    """All that is known of a running instance; of its queues the sum, and a line of each.

    Raises:
        CarefulError: carefuld does not answer.
    """
    each = [gather_queue(one, config) for one in instances.queues(instance)]
    if len(each) == 1:
        return {**each[0], "queues": []}
    errors = [one["xdp_counters_error"] for one in each if one["xdp_counters_error"]]
    return {
        **each[0],
        **{name: sum(one[name] for one in each) for name in _SUMMED},
        "counters": _total([one["counters"] for one in each]),
        "xdp_counters": {} if errors else _total([one["xdp_counters"] for one in each]),
        "xdp_counters_error": errors[0] if errors else None,
        "peers": [peer for one in each for peer in one["peers"]],
        "programs": [program for one in each for program in one["programs"]],
        "queues": [_queue(one) for one in each],
        "master": next((one["master"] for one in each if one["master"]), None),
    }


def gather_all(
    running: Iterable[Instance], config: Config
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What is known of each of several, and why of those that do not answer nothing is, by name.

    Raises:
        CarefulError: none of them answers.
    """
    found: list[dict[str, Any]] = []
    errors: dict[str, CarefulError] = {}
    for one in running:
        try:
            found.append(gather(one, config))
        except CarefulError as error:
            errors[one.name] = error
    if errors and not found:
        raise next(iter(errors.values()))
    return found, {name: str(error) for name, error in errors.items()}


def _master(instance: Instance) -> str | None:
    """The bridge or bond that an instance's interface is a port of, if we can see it."""
    with suppress(CarefulError):
        return links.master(links.find(instance.ifname)) if instance.here else None
    return None


def gather_queue(instance: Instance, config: Config, timeout_s: float = 10.0) -> dict[str, Any]:
    """The same of one queue alone; timeout_s: how long carefuld may take to answer, seconds."""
    with Client(instance.socket, f"carefuld of {instance.name}", timeout_s) as client:
        info = client.info()
        peers = client.peers()
        programs = client.programs()
    xdp, xdp_error = _xdp(instance)
    found = [{**peer(one, info.port, config), "queue": info.device.queue} for one in peers]
    return {
        "instance": instance.name,
        "pid": instance.pid if instance.pid != instances.UNSEEN else None,
        "log": instance.log_shown,
        "kernel": os.uname().release,
        **in_effect(info),
        "ifname": instance.ifname or text(info.device.ifname),
        "exports": exports(instance),
        "tuner_pid": instances.tuner(instance) or None,
        "counters": counters(info),
        "xdp_counters": xdp,
        "xdp_counters_error": xdp_error,
        "peers": found,
        "master": _master(instance) if any(one["control_unheard"] for one in found) else None,
        "programs": [program(one) for one in programs],
    }


def called(one: Mapping[str, Any]) -> str:
    """What a peer is called: as careful.toml does, as it does itself, or by its address."""
    return str(one["node"] or one["name"] or one["address"])


def slow_clients(found: dict[str, Any]) -> list[str]:
    """Peers whose frames local clients keep for so long that credits are withheld."""
    return [called(one) for one in found["peers"] if one["withholding"]]


def older(peers: list[dict[str, Any]]) -> list[str]:
    """Of each peer that knows less of the wire than this host: a line."""
    version, here = int(lib.CAREFUL_WIRE_VERSION), int(lib.CAREFUL_WIRE_MINOR)
    return [
        f"{called(one)} speaks wire {version}.{one['wire_minor']}, this host {version}.{here}: "
        "nothing newer is said between the two"
        for one in peers
        if one["state"] == "up" and one["wire_minor"] < here
    ]


def unheard(peers: list[dict[str, Any]], port: int, master: str | None = None) -> list[str]:
    """One line for each peer whose frames come, but none of its control messages.

    Args:
        peers: of an instance.
        port: of the instance.
        master: the bridge or bond that its interface is a port of, if it is one.
    """
    why = f"does a firewall drop UDP port {port}, here or there?"
    if master:
        why = f"{master}, of which the interface is a port now, takes them"
    return [
        f"the frames of {called(one)} come, but no control messages: {why}"
        for one in peers
        if one["control_unheard"]
    ]


def narrow(peers: list[dict[str, Any]]) -> list[str]:
    """One line for each peer to which the way takes smaller frames than both ends do."""
    return [
        f"frames to {called(one)} have {one['frame_bytes']} bytes at most: a link on the way takes "
        f"no larger (path MTU {one['frame_bytes'] - ETHERNET_BYTES})"
        for one in peers
        if one["path_is_narrow"]
    ]


def peers_at(instance: Instance) -> tuple[list[dict[str, Any]], int]:
    """The peers of a running instance, asked of it, and its port.

    Raises:
        CarefulError: carefuld does not answer.
    """
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        port = client.info().port
        return [peer(one, port, Config()) for one in client.peers()], port

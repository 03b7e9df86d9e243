"""Status and counters of an instance: carefuld's own view, and XDP's counters from their map."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from careful._abi import CData
from careful.control.host import links
from careful.control.instance import instances, usage
from careful.control.instance.instances import Instance
from careful.control.instance.memory_hosts import Hosts
from careful.control.instance.records import (
    InEffect,
    PeerStatus,
    ProgramStatus,
    counters,
    in_effect,
    peer,
    program,
)
from careful.control.options import command_line
from careful.control.options.config import Config
from careful.control.options.exports import Export, parse
from careful.daemon.client import Client
from careful.errors import CarefulError
from careful.jsonout import Json


@dataclass(frozen=True)
class Owner:
    """A host that holds memory here; gone_s: seconds since its last session, None during one."""

    owner: str
    most: int
    used: int
    pieces: int
    gone_s: int | None


@dataclass(frozen=True)
class Lent:
    """Memory that is lent to peers; sizes in bytes."""

    nbytes: int
    used: int
    owners: Sequence[Owner]


@dataclass(frozen=True)
class QueueStatus:
    """One of several queues of an instance."""

    queue: int
    instance: str
    pid: int | None
    port: int
    peers: int
    peers_max: int
    rx_frames: int
    tx_frames: int


@dataclass(frozen=True)
class Status(InEffect):
    """The status of a running instance; sums, if it has several queues.

    pid is None in another PID namespace; link_trouble says why no frame can pass the interface;
    master is the bridge or bond that receives control messages.
    """

    instance: str
    pid: int | None
    log: str
    kernel: str
    exports: Sequence[Export]
    tuner_pid: int | None
    counters: Mapping[str, int]
    xdp_counters: Mapping[str, int]
    xdp_counters_error: str | None
    peers: Sequence[PeerStatus]
    programs: Sequence[ProgramStatus]
    link_trouble: str | None = None
    master: str | None = None
    queues: Sequence[QueueStatus] = ()
    lent: Lent | None = None


def _lent(uses: Sequence[usage.LendUse], hosts: Hosts) -> Lent | None:
    owners = [
        Owner(
            hosts.name(owner.by, owner.identity),
            owner.nbytes,
            owner.used,
            owner.pieces,
            owner.gone_s - 1 if owner.gone_s else None,
        )
        for owner in uses[1:]
    ]
    return Lent(uses[0].nbytes, uses[0].used, owners) if uses else None


def info_of(instance: Instance) -> CData:
    """Asks carefuld for its `struct careful_info`; raises CarefulError if it does not answer."""
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        return client.info()


def _xdp_counters(instance: Instance) -> tuple[dict[str, int], str | None]:
    from careful.control.instance import maps  # libbpf, which transfers do not need

    try:
        return maps.xdp_counters(instance.name), None
    except CarefulError as error:
        return {}, str(error)


def exports(instance: Instance) -> list[Export]:
    """Returns the directories that peers may use."""
    return [parse(export) for export in command_line.read(instance.argv).export or ()]


#: Fields that are summed over an instance's queues.
_SUMMED = (
    *("peers_max", "receive_buffers", "rx_buffers", "tx_buffers", "umem_bytes"),
    *("copyout_buffers", "copyout_used_buffers", "reserve_buffers", "reserve_free_buffers"),
)


def _sums(counters: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(queue.get(name, 0) for queue in counters) for name in counters[0]}


def _queue_status(status: Status) -> QueueStatus:
    own = status.queue, status.instance, status.pid, status.port
    frames = status.counters["rx_frames"], status.counters["tx_frames"]
    return QueueStatus(*own, len(status.peers), status.peers_max, *frames)


def gather(instance: Instance, config: Config) -> Status:
    """Returns the status of a running instance: sums of its queues, and a line of each.

    Raises CarefulError if carefuld does not answer.
    """
    statuses = [gather_queue(queue, config) for queue in instances.queues(instance)]
    if len(statuses) == 1:
        return statuses[0]
    error = next((queue.xdp_counters_error for queue in statuses if queue.xdp_counters_error), None)
    sums: Json = {name: sum(getattr(queue, name) for queue in statuses) for name in _SUMMED}
    return replace(
        statuses[0],
        **sums,
        counters=_sums([queue.counters for queue in statuses]),
        xdp_counters={} if error else _sums([queue.xdp_counters for queue in statuses]),
        xdp_counters_error=error,
        peers=[peer for queue in statuses for peer in queue.peers],
        programs=[program for queue in statuses for program in queue.programs],
        queues=[_queue_status(queue) for queue in statuses],
        master=next((queue.master for queue in statuses if queue.master), None),
    )


def gather_all(running: Iterable[Instance], config: Config) -> tuple[list[Status], dict[str, str]]:
    """Returns the status of several instances, and by name the errors of the others.

    Raises CarefulError if none answers.
    """
    statuses: list[Status] = []
    errors: dict[str, CarefulError] = {}
    for instance in running:
        try:
            statuses.append(gather(instance, config))
        except CarefulError as error:
            errors[instance.name] = error
    if errors and not statuses:
        raise next(iter(errors.values()))
    return statuses, {name: str(error) for name, error in errors.items()}


def _master(instance: Instance) -> str | None:
    with suppress(CarefulError):
        return links.master(links.find(instance.ifname)) if instance.here else None
    return None


def _link_trouble(instance: Instance) -> str | None:
    with suppress(CarefulError):
        link = links.find(instance.ifname) if instance.here else None
        if link and not link.up:
            return f"{link.name} is down: ip link set {link.name} up"
        if link and not link.carrier:
            return f"{link.name} has no carrier: look at the cable and the other end"
    return None


def peers_of(client: Client) -> list[CData]:
    """Returns carefuld's peers, without those that failed before their first session.

    Such a peer was mistyped, or is not up: nothing waits for it, and its slot is free. The command
    that asked for it has reported why.
    """
    return [one for one in client.peers() if one.epochs or not one.last_errno]


def gather_queue(instance: Instance, config: Config, timeout_s: float = 10.0) -> Status:
    """Returns gather() for one queue; timeout_s: time for carefuld to answer."""
    with Client(instance.socket, f"carefuld of {instance.name}", timeout_s) as client:
        info = client.info()
        peers = peers_of(client)
        programs = client.programs()
        lends = usage.ask(client).lends
    xdp, xdp_error = _xdp_counters(instance)
    sessions = [peer(entry, info, config) for entry in peers]
    settings = in_effect(info)
    return Status(
        **vars(settings) | {"ifname": instance.ifname or settings.ifname},
        instance=instance.name,
        pid=instance.pid if instance.pid != instances.UNSEEN else None,
        log=instance.log_shown,
        kernel=os.uname().release,
        exports=exports(instance),
        tuner_pid=instances.tuner(instance) or None,
        counters=counters(info),
        xdp_counters=xdp,
        xdp_counters_error=xdp_error,
        peers=sessions,
        link_trouble=_link_trouble(instance),
        master=_master(instance) if any(entry.control_unheard for entry in sessions) else None,
        programs=[program(entry) for entry in programs],
        lent=_lent(lends, Hosts.of(instance, config)),
    )


def slow_clients(status: Status) -> list[str]:
    """Returns peers whose frames local clients keep so long that credits are withheld."""
    return [peer.called for peer in status.peers if peer.withholding]


def peers_at(instance: Instance) -> tuple[list[PeerStatus], int]:
    """Asks a running instance for its peers and its port.

    Raises CarefulError if carefuld does not answer.
    """
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        info = client.info()
        return [peer(entry, info, Config()) for entry in peers_of(client)], int(info.port)

"""`tune show`, `tune set` and `tune apply`: maps peers to their slots of the tune map."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from careful._abi import lib
from careful.address import Address
from careful.control.instance import choice, instances, maps, records, status
from careful.control.instance.instances import Instance
from careful.control.options.config import Config
from careful.control.plans import tune_entry
from careful.daemon.client import Client
from careful.errors import CarefulError

DEFAULT_SLOT = int(lib.CAREFUL_TUNE_DEFAULT)


@dataclass(frozen=True)
class Row:
    """Settings of one peer.

    Attributes:
        peer: name or address; "new peers" for the default.
        slot: entry in the tune map.
        tune: settings in effect.
        queue: name of the instance whose map has the slot.
    """

    peer: str
    slot: int
    tune: tune_entry.Tune
    queue: str = ""


@dataclass(frozen=True)
class TunedPeer:
    """A peer with a slot of the tune map.

    Attributes:
        address: as `status` shows it.
        label: name for users.
        frame_bytes: largest frame to the peer; 0 if unknown.
    """

    slot: int
    address: str
    label: str
    frame_bytes: int = 0

    @property
    def ip(self) -> str:
        """Returns the address without a port."""
        text = self.address
        if text.startswith("["):
            return text[1:].partition("]")[0]
        return text.partition(":")[0] if text.count(":") == 1 else text


@dataclass(frozen=True)
class Session:
    """A running instance, with its peers.

    Attributes:
        effect: settings that measurements depend on; None without a carefuld.
        peers: peers with a slot.
        frame_bytes: largest frame of the device; 0 if unknown.
        others: the same for the instance's other queues.
        used: all settings; None without a carefuld.
    """

    instance: Instance
    effect: records.Effect | None
    peers: Sequence[TunedPeer]
    frame_bytes: int
    others: tuple[Session, ...] = ()
    used: records.InEffect | None = None

    @property
    def queues(self) -> tuple[Session, ...]:
        """This session and those of the other queues."""
        return (self, *self.others)


def session(ifname: str, name: str | None, config: Config) -> Session:
    """Returns the instance on an interface. Raises CarefulError if careful is not up there."""
    instance = choice.on_interface(ifname, name)
    if not instance.pid:
        if not instances.owner_without_daemon(instance.name):
            text = f"careful is not up: carefulctl up {ifname}"
            raise CarefulError(errno.ENOENT, text, ifname)
        slots = [(slot, f"slot {slot}") for slot in maps.sessions(instance.name)]
        peers = [TunedPeer(slot, name, name) for slot, name in slots]
        return Session(instance, None, peers, 0)
    first, *others = [_running(queue, config) for queue in instances.queues(instance)]
    return replace(first, others=tuple(others))


def _running(instance: Instance, config: Config) -> Session:
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        info = client.info()
        statuses = [records.peer(entry, info, config) for entry in status.peers_of(client)]
    peers = [
        TunedPeer(entry.slot, entry.address, entry.called, entry.frame_bytes) for entry in statuses
    ]
    used = records.in_effect(info)
    return Session(instance, records.effect(info), peers, used.frame_bytes, used=used)


def _chosen(
    session: Session, hosts: Sequence[str], config: Config
) -> list[tuple[Session, list[tuple[str, int]]]]:
    """Returns each queue, with the label and slot of the hosts' peers there.

    Raises CarefulError if a host is not a peer.
    """
    addresses = [(host, config.resolve(host)) for host in hosts]
    chosen = []
    for queue in session.queues:
        pairs = product(addresses, queue.peers)
        slots = [(host, one.slot) for (host, address), one in pairs if _has_address(one, address)]
        chosen.append((queue, slots))
    found = {host for _, slots in chosen for host, _ in slots}
    for host in hosts:
        if host not in found:
            labels = [peer.label for queue in session.queues for peer in queue.peers]
            known = ", ".join(labels) or "none"
            text = f"no session with this host (sessions: {known}); omit --peer to set all peers"
            raise CarefulError(errno.ENOENT, text, host)
    return chosen


def _has_address(peer: TunedPeer, address: Address) -> bool:
    exact = peer.address == str(address)
    return exact or (not address.port and peer.ip == address.ip)


def show(session: Session, hosts: Sequence[str], config: Config) -> list[Row]:
    """Returns the settings of some peers, or of all peers and new peers.

    Raises CarefulError if a host is not a peer or the map cannot be read.
    """
    rows = []
    for queue, slots in _chosen(session, hosts, config):
        if not hosts:
            slots = [(peer.label, peer.slot) for peer in queue.peers]
            if queue is session:  # the default is the same in all queues
                slots.insert(0, ("new peers", DEFAULT_SLOT))
        with maps.tune_map(queue.instance.name) as entries:
            rows += [
                Row(label, slot, tune_entry.read(entries, slot), queue.instance.name)
                for label, slot in slots
            ]
    return rows


def change(
    session: Session,
    hosts: Sequence[str],
    config: Config,
    settings: Mapping[int, tune_entry.Setting],
    on_set: Callable[[Session, list[int]], None],
) -> list[Row]:
    """Sets some classes of some peers, or of all peers and new peers; returns the new settings.

    on_set: called for each queue with the slots that were set, [] for all, before another tuner
    may write. Raises CarefulError if a host is not a peer or the map refuses.
    """
    for queue, chosen in _chosen(session, hosts, config):
        slots = [slot for _, slot in chosen]
        if hosts and not slots:  # their peers are on other queues
            continue
        name = queue.instance.name
        with tune_entry.one_writer(maps.pins(name)), maps.tune_map(name) as map_:
            tune_entry.apply(map_, slots or tune_entry.all_slots(), settings)
            on_set(queue, slots)
    return show(session, hosts, config)

"""`tune show`, `tune set` and `tune apply`: maps peers to their slots of the tune map."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from careful._abi import lib
from careful.address import Address
from careful.control import instances, maps, status, tune_entry
from careful.control.config import Config
from careful.control.instances import Instance
from careful.daemon.client import Client
from careful.errors import CarefulError

DEFAULT_SLOT = int(lib.CAREFUL_TUNE_DEFAULT)


@dataclass(frozen=True)
class Row:
    """Settings of one peer.

    Attributes:
        peer: its name or address; "new peers" for the default.
        slot: its entry in the tune map.
        tune: what is in effect.
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
        slot: its entry.
        address: as `status` shows it.
        label: its name for users.
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
        instance: which.
        effect: what is in effect on the device; None if no carefuld is asked.
        peers: those with a slot.
        payload_bytes: the largest fragment that a frame of the device holds; 0 if unknown.
        others: the same for its other queues.
        used: its settings; None if no carefuld is asked.
    """

    instance: Instance
    effect: status.Effect | None
    peers: Sequence[TunedPeer]
    payload_bytes: int
    others: tuple[Session, ...] = ()
    used: status.InEffect | None = None

    @property
    def queues(self) -> tuple[Session, ...]:
        """This session and those of the other queues."""
        return (self, *self.others)


def session(ifname: str, name: str | None, config: Config) -> Session:
    """Returns the instance on an interface. Raises CarefulError if careful is not up there."""
    instance = instances.on_interface(ifname, name)
    if not instance.pid:
        if not instances.owner_without_daemon(instance.name):
            text = f"careful is not up: carefulctl up {ifname}"
            raise CarefulError(errno.ENOENT, text, ifname)
        slots = [(slot, f"slot {slot}") for slot in maps.sessions(instance.name)]
        peers = [TunedPeer(slot, name, name) for slot, name in slots]
        return Session(instance, None, peers, 0)
    first, *others = [_running(one, config) for one in instances.queues(instance)]
    return replace(first, others=tuple(others))


def _running(instance: Instance, config: Config) -> Session:
    with Client(instance.socket, f"carefuld of {instance.name}") as client:
        info = client.info()
        found = [status.peer(one, info, config) for one in client.peers()]
    peers = [TunedPeer(one.slot, one.address, one.called, one.frame_bytes) for one in found]
    used = status.in_effect(info)
    return Session(instance, status.effect(info), peers, used.frame_bytes, used=used)


def _slots(one: Session, hosts: Sequence[str], config: Config) -> list[tuple[str, int]]:
    found = []
    for host in hosts:
        address = config.resolve(host)
        found += [(host, peer.slot) for peer in one.peers if _is(peer, address)]
    return found


def _check(one: Session, hosts: Sequence[str], config: Config) -> None:
    everybody = [peer for queue in one.queues for peer in queue.peers]
    for host in hosts:
        address = config.resolve(host)
        if not any(_is(peer, address) for peer in everybody):
            known = ", ".join(peer.label for peer in everybody) or "none"
            text = f"no session with it (sessions: {known}); without --peer, all peers are set"
            raise CarefulError(errno.ENOENT, text, host)


def _is(peer: TunedPeer, address: Address) -> bool:
    exact = peer.address == str(address)
    return exact or (not address.port and peer.ip == address.ip)


def _everybody(one: Session) -> list[tuple[str, int]]:
    return [("new peers", DEFAULT_SLOT), *((peer.label, peer.slot) for peer in one.peers)]


def show(one: Session, hosts: Sequence[str], config: Config) -> list[Row]:
    """Returns what is in effect, for some peers or for all and new ones.

    Raises CarefulError if a host is no peer or the map cannot be read.
    """
    _check(one, hosts, config)
    rows = []
    for queue in one.queues:
        named = _slots(queue, hosts, config) if hosts else _everybody(queue)
        if queue in one.others:  # the default is the same in all queues
            named = [(who, slot) for who, slot in named if slot != DEFAULT_SLOT]
        with maps.tune_map(queue.instance.name) as entries:
            rows += [
                Row(who, slot, tune_entry.read(entries, slot), queue.instance.name)
                for who, slot in named
            ]
    return rows


def change(
    one: Session,
    hosts: Sequence[str],
    config: Config,
    settings: Mapping[int, tune_entry.Setting],
    noted: Callable[[Session, list[int]], None],
) -> list[Row]:
    """Sets some classes, for some peers or for all and new ones; returns what is in effect then.

    noted: called for each queue with the slots that were set, none for all, before another tuner
    may write. Raises CarefulError if a host is no peer or the map refuses.
    """
    _check(one, hosts, config)
    for queue in one.queues:
        named = [slot for _, slot in _slots(queue, hosts, config)]
        if hosts and not named:  # their peers are on other queues
            continue
        name = queue.instance.name
        with tune_entry.one_writer(maps.pins(name)), maps.tune_map(name) as map_:
            tune_entry.apply(map_, named or tune_entry.all_slots(), settings)
            noted(queue, named)
    return show(one, hosts, config)

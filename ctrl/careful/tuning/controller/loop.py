"""`tune auto`: a controller for each peer of a running instance.

Owns which peers are tuned, and an orderly end of an A/B under way.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from selectors import EVENT_READ, BaseSelector, DefaultSelector
from types import FrameType

from careful._abi import CData, ffi, lib
from careful.address import Address
from careful.control.host import links
from careful.control.instance import instances, records
from careful.control.instance.instances import Instance
from careful.control.options.config import Config
from careful.control.state.state_dir import StateDir, place
from careful.daemon.client import Client
from careful.errors import CarefulError, EndedBySignal
from careful.jsonout import Json
from careful.tuning.controller.policy import Controller
from careful.tuning.controller.scheduler import Scheduler
from careful.tuning.instance_path import Peer, RunningPath, own_ip
from careful.tuning.slot_check import LeftError
from careful.tuning.state import USED, PathState, Store
from careful.units import counted

#: Time between two looks for peers that came or went, seconds.
PEERS_S = 0.5
#: Time limit to open a session with a named peer, seconds.
CONNECT_S = 5.0
#: From these bytes, and this ratio of bytes to and from us, a peer should be tuned at its own end.
SENDER_BYTES, SENDER_RATIO = 16 << 20, 10

#: Called with the peer's label and a decision of policy.Controller.
Say = Callable[[str, Json], None]


class _Tuned:
    """A peer that is tuned while it has its slot. After that, nothing is written to the slot."""

    def __init__(
        self,
        instance: Instance,
        peer: Peer,
        identity: Json,
        store: Store,
        say: Say,
        scheduler: Scheduler,
        client: Client,
    ) -> None:
        self.peer, self.identity = peer, identity  # the identity outlives a carefuld
        self.path = RunningPath(
            instance, peer, store, scheduler.meanwhile, lambda: _has_slot(client, peer)
        )
        name = peer.name
        self.state = store.of(name, identity)
        carefuld = _process(instance.pid)
        returned, self.state.carefuld = self.state.carefuld != carefuld, carefuld
        try:
            self.path.begin()
            self.controller = Controller(
                self.path,
                self.state,
                time.monotonic,
                save=lambda: store.save(name, self.state),
                say=lambda decision: say(peer.label, decision),
                returned=returned,
            )
        except CarefulError:
            self.path.close()
            raise
        self._turns, self._turn = scheduler, scheduler.add(self)

    @property
    def trying(self) -> bool:
        """Reports whether an A/B or a search is under way."""
        return self.controller.trying and not self.path.tenancy.is_over

    def collect(self, keep: bool, /) -> None:
        with suppress(LeftError):
            self.controller.collect(keep)

    def step(self, alone: bool = True, /) -> float:
        with suppress(LeftError):
            if not self.path.tenancy.is_over:
                return self.controller.step(alone)
        return PEERS_S  # the next _look() closes this path

    def close(self) -> None:
        self._turns.remove(self._turn)
        # The instance and its maps may be gone; if another peer has the slot, nothing is written.
        with suppress(OSError):
            self.controller.close()
        self.path.close()


class Loop:
    """Tunes all peers of an instance, or those that are named.

    Args:
        instance: a running carefuld.
        hosts: names or addresses of the peers to tune; none: all peers.
        config: with the nodes' names.
        say: called with each decision and its peer.
        warn: called with a warning: state cannot be stored or read, the peer should be tuned at its
            own end, or an unverified plan stays.
    """

    def __init__(
        self,
        instance: Instance,
        hosts: Sequence[str],
        config: Config,
        say: Say,
        warn: Callable[[str], None],
    ) -> None:
        self._instance, self._config, self._say = instance, config, say
        self._named = {config.resolve(host).ip: host for host in hosts}
        self._store = Store(instance.directory, StateDir(place(config), warn))
        self._tuned: dict[str, _Tuned] = {}
        self._turns = Scheduler()
        self._warn = warn
        # sent and received bytes at the first look; None: the warning was given
        self._moved: dict[str, tuple[int, int] | None] = {}
        self._once = False

    def run(self, once: bool) -> dict[str, PathState]:
        """Tunes; returns the state of each peer at the end.

        once: ends when every peer was measured and every change was tried. Raises CarefulError if
        another process tunes the instance, if carefuld ends, or with `once` if there is no peer;
        EndedBySignal or KeyboardInterrupt at a signal.
        """
        self._once = once
        # Importing these takes a third of a first measurement's CPU time.
        for name in ("numpy.ma", "numpy.random"):
            importlib.import_module(name)
        with ExitStack() as stack:
            stack.enter_context(instances.holding(self._instance, instances.TUNER_LOCK, "is tuned"))
            client = Client(self._instance.socket, f"carefuld of {self._instance.name}")
            stack.enter_context(client)
            carefuld_end = _end_of(self._instance.pid, stack)
            stack.enter_context(_terminable())
            stack.callback(self._close)
            for host in self._named.values():
                client.connect(self._config.resolve(host), host, CONNECT_S)
            self._rounds(client, carefuld_end, once)
            return {name: tuned.state for name, tuned in self._tuned.items()}

    def _close(self) -> None:
        for tuned in self._tuned.values():
            tuned.close()
            if count := len(tuned.state.unverified):
                self._warn(
                    f"{tuned.peer.label}: {counted(count, 'setting')} in effect but not verified, "
                    "because too few messages came: `carefulctl tune explain` shows them, "
                    "`carefulctl tune set --default` undoes them"
                )

    def _note_direction(self, peer: str, sent_bytes: int, received_bytes: int) -> None:
        """Warns once if the peer sends most of the data: then the peer's own settings matter."""
        first = self._moved.setdefault(peer, (sent_bytes, received_bytes))
        if first is None:
            return
        sent, received = sent_bytes - first[0], received_bytes - first[1]
        if received >= max(SENDER_BYTES, SENDER_RATIO * sent):
            self._moved[peer] = None
            self._warn(
                f"this host mostly receives from {peer}, so the settings of {peer} matter: run "
                f"`carefulctl tune auto` on {peer}"
            )

    def _rounds(self, client: Client, carefuld_end: BaseSelector, once: bool) -> None:
        looked = -PEERS_S
        while True:
            now = time.monotonic()
            if now - looked >= PEERS_S:
                self._look(client)
                looked = now
                if once and not self._tuned:
                    text = "no peer has a session: name a host with --peer"
                    raise CarefulError(errno.ENOENT, text, self._instance.ifname)
            self._turns.step()
            controllers = [tuned.controller for tuned in self._tuned.values()]
            if once and all(one.considered and not one.trying for one in controllers):
                return
            due = min(looked + PEERS_S, self._turns.due())
            if carefuld_end.select(max(0.0, due - time.monotonic())):
                raise CarefulError(errno.ENOENT, "carefuld ended", self._instance.ifname)

    def _look(self, client: Client) -> None:
        """Updates the tuned peers. A peer stays tuned while its path is the same."""
        info = client.info()
        present: dict[str, tuple[Peer, Json]] = {}
        for raw in client.peers():
            if not _is_up(raw):
                continue
            peer_status = records.peer(raw, info, self._config)
            address = _address(raw)
            if self._named and address.ip not in self._named:
                continue
            self._note_direction(peer_status.called, peer_status.tx_bytes, peer_status.rx_bytes)
            peer = Peer(
                peer_status.called,
                peer_status.address,
                address,
                peer_status.slot,
                peer_status.frame_bytes,
            )
            host_ip = self._own_ip(peer, int(info.device.ifindex))
            present[peer.name] = (peer, _identity(self._instance, info, peer_status, host_ip))
        for name, tuned in list(self._tuned.items()):
            same = name in present and present[name] == (tuned.peer, tuned.identity)
            if not same or tuned.path.tenancy.is_over:
                tuned.close()
                del self._tuned[name]
        shared = (self._store, self._say, self._turns, client)
        for name, (peer, identity) in present.items():
            if name not in self._tuned:
                with suppress(LeftError):  # the peer may have left by now
                    tuned = _Tuned(self._instance, peer, identity, *shared)
                    tuned.controller.searches = not self._once  # a search takes minutes
                    self._tuned[name] = tuned

    def _own_ip(self, peer: Peer, ifindex: int) -> str:
        """Returns our address towards a peer; the earlier one if our interface has no route now."""
        ours, name = own_ip(peer.address), peer.name
        tuned = self._tuned.get(name) or self._store.load().get(name)
        before = str(tuned.identity.get("own_ip", "")) if tuned else ""
        if before in ("", ours):
            return ours
        return ours if ours in links.addresses(ifindex) else before


def _address(raw: CData) -> Address:
    return Address.from_sockaddr(bytes(ffi.buffer(ffi.addressof(raw, "address"))))


def _is_up(raw: CData) -> bool:
    return raw.state in (lib.CAREFUL_PEER_UP, lib.CAREFUL_PEER_STALLED, lib.CAREFUL_PEER_RENEWING)


def _has_slot(client: Client, peer: Peer) -> bool:
    return any(
        raw.slot == peer.slot and _is_up(raw) and _address(raw) == peer.address
        for raw in client.peers()
    )


def _identity(instance: Instance, info: CData, peer: records.PeerStatus, own_ip: str) -> Json:
    """Returns what defines a path: both addresses, the instance, and its use of the device."""
    in_effect = records.in_effect(info)
    return {
        "instance": instance.name,
        "own_ip": own_ip,
        "peer": peer.address,
        "peer_frame_bytes": peer.frame_bytes,
        **{name: getattr(in_effect, name) for name in USED},
    }


def _process(pid: int) -> str:
    """Identifies a process by pid and start time, since pids are reused."""
    with suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text()
        return f"{pid} {text.rpartition(')')[2].split()[19]}"
    return ""


def _end_of(pid: int, stack: ExitStack) -> BaseSelector:
    """Returns a selector that is ready when the process has ended."""
    fd = os.pidfd_open(pid)
    stack.callback(os.close, fd)
    selector = stack.enter_context(DefaultSelector())
    selector.register(fd, EVENT_READ)
    return selector


@contextmanager
def _terminable() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into exceptions, so that an A/B ends in order."""

    def end(number: int, _: FrameType | None) -> None:
        raise EndedBySignal(number)

    before = {
        number: signal.signal(number, end)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

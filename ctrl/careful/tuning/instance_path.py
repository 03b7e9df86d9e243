"""A path of a running instance: measures, reads and changes it for the controller."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from careful.address import Address
from careful.control.instance import choice, instances, live_latency, maps
from careful.control.instance.instances import Instance
from careful.control.plans import tune_entry
from careful.control.plans.tune_entry import Setting, Versions
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.jsonout import Json
from careful.measure.outside.blackbox import BlackBox, Options
from careful.measure.outside.quick import Glance
from careful.measure.outside.undisturbed import TRIES, Undisturbed
from careful.measure.probes.exchange import ProbeSession
from careful.plan import Limits, Plan
from careful.tuning.settings import STORE, Kick, Pulse, Value
from careful.tuning.slot_check import Tenancy
from careful.tuning.state import Store
from careful.tuning.store_model import Arrivals, Totals, counted
from careful.tuning.verify import Counts

#: Options of a close measurement: as precise as a decision needs, and few sizes. A train fills the
#: path for 4 ms or for the time of four frames, and then leaves it free for three times as long. (A
#: train of a quick measurement leaves it free for two thirds of its own time.)
CLOSELY = Options(
    sizes_count=6, precision=0.03, seconds=4.0, patience_s=6.0, train_frames=4, share=0.25
)
#: Options for a path with live messages: fewer trains and round trips, because many are disturbed.
BUSY = replace(CLOSELY, sizes_count=5, between=2, ends=False, share=0.75, resolution_us=1.0)
BUSY_PATIENCE_S = 20.0
#: Attempts of a quick measurement for a train.
QUICK_TRIES = 4
#: A path is busy if live messages come within this time, seconds.
BUSY_S = 0.4
#: A busy path may give no figures. Each such failure doubles the next one's time, up to this, s.
PATIENCE_S_MAX = 48.0
#: Figures of a measurement that are not stored: every sample.
_SAMPLES = ("round_trip_minima", "train_gaps")


def tunable(ifname: str, name: str | None) -> Instance:
    """Returns the instance of an interface, if the instance can measure.

    Raises CarefulError if no instance runs, or if it belongs to a program, which cannot measure.
    """
    instance = choice.on_interface(ifname, name)
    if not instance.pid and (pid := instances.owner_without_daemon(instance.name)):
        text = (
            f"belongs to {instances.process(pid)}, a program with a queue of its own, which cannot "
            "measure: measure between carefulds of both hosts (measure blackbox HOST), then set "
            "plans while it runs: plan --classes --json, tune apply"
        )
        raise CarefulError(errno.EOPNOTSUPP, text, ifname)
    return choice.named_or_all(ifname, name)[0]


@dataclass(frozen=True)
class Peer:
    """The other end of a path.

    Attributes:
        name: the address as text, as in `status`.
        slot: its entry in the maps.
        frame_bytes: size of a frame towards the peer, headers included; 0: not known.
    """

    label: str
    name: str
    address: Address
    slot: int
    frame_bytes: int = 0


@dataclass(frozen=True)
class _Counted:
    """An entry of the live map, raw and decoded."""

    entry: bytes | None
    live: Mapping[tuple[int, int], Counts]
    stored: Totals


def _read(entry: bytes | None) -> _Counted:
    latencies = {
        key: Counts(cell.count, cell.sum_ns, cell.sum_sq_ns2)
        for key, cell in live_latency.cells_in(entry).items()
    }
    stored, writes = live_latency.stored_in(entry)
    for (index, version), cell in stored.items():
        latencies[STORE + index, version] = Counts(cell.count, cell.sum_ns, cell.sum_sq_ns2)
    totals = counted(
        (
            (index, Arrivals(cell.count, cell.frames, cell.nbytes, cell.sum_came_ns))
            for (index, _), cell in stored.items()
        ),
        {
            index: (cell.nbytes, Counts(cell.count, cell.sum_ns, cell.sum_sq_ns2))
            for index, cell in writes.items()
        },
    )
    return _Counted(entry, latencies, totals)


class RunningPath:
    """A path of a running instance (path.Path).

    store: has the values that were set by hand; pause: lets time pass while this path is measured;
    has_slot: asks carefuld whether the peer still has its slot.

    Raises:
        CarefulError: the maps cannot be opened. Every method may raise it, too.
        LeftError: only from methods that use the slot: the peer no longer has it.
    """

    def __init__(
        self,
        instance: Instance,
        peer: Peer,
        store: Store,
        pause: Callable[[float], None],
        has_slot: Callable[[], bool],
    ) -> None:
        self._instance, self.peer, self._store = instance, peer, store
        self._pause = pause
        self.tenancy = Tenancy(instance.name, peer.slot, peer.label, has_slot)
        self._tune = maps.tune_map(instance.name)
        self._live = maps.live_map(instance.name)
        self._two: Versions | None = None
        self._payload_bytes = 0  # of a frame; 0: not known yet
        self._patience_s = CLOSELY.patience_s
        self._seen: _Counted | None = None

    def close(self) -> None:
        self.tenancy.close()
        self._tune.close()
        self._live.close()

    def measure(self, quick: bool) -> tuple[Json, Limits]:
        """Measures with trains and round trips through careful; quick: with a few of them."""
        instance, peer = self._instance, self.peer
        route = Route(instance.socket, instance.name, peer.address, peer.label)
        with ProbeSession(route, self._payload_bytes) as session:
            self._payload_bytes = session.payload_max_bytes
            limits = Limits(CLOSELY.min_bytes, self._payload_bytes)
            exchange = Undisturbed(session, self._pause, QUICK_TRIES if quick else TRIES)
            if quick:
                figures = Glance(exchange, sleep=self._pause).figures()
                return {**figures, "order": self._store.order(peer.address.ip)}, limits
            figures = BlackBox(exchange, self._closely(), sleep=self._pause).run().figures()
        longer_s = min(2 * self._patience_s, PATIENCE_S_MAX)
        self._patience_s = longer_s if figures["reason"] else CLOSELY.patience_s
        for name in _SAMPLES:
            del figures[name]
        return figures | {"order": self._store.order(peer.address.ip)}, limits

    def _closely(self) -> Options:
        """Returns the options of a close measurement, which depend on the traffic."""
        before = live_latency.whole(self._live, self.peer.slot)
        self._pause(BUSY_S)
        if live_latency.whole(self._live, self.peer.slot) == before:
            return replace(CLOSELY, patience_s=self._patience_s)
        return replace(BUSY, patience_s=max(BUSY_PATIENCE_S, self._patience_s))

    def limits(self) -> Limits:
        """Returns the payload of a frame, or else the peer's frame size as a bound."""
        most = self._payload_bytes or self.peer.frame_bytes
        return Limits(CLOSELY.min_bytes, most) if most > CLOSELY.min_bytes else Limits()

    def in_effect(self) -> tuple[Value, ...]:
        self.tenancy.check()
        tune = tune_entry.read(self._tune, self.peer.slot)
        return (*plans(tune), *pulses(tune), *kicks(tune))

    def by_hand(self) -> frozenset[int]:
        return self._store.by_hand(self.peer.name, self.in_effect())

    def begin(self) -> None:
        """Forgets values set by hand if the slot does not have them: the slot may be a new one."""
        with self._alone():
            self._store.unpin(self.peer.name, self.in_effect())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with tune_entry.one_writer(maps.pins(self._instance.name)):
            self.tenancy.check()
            yield

    def _ours(self, values: Mapping[int, Value]) -> dict[int, Setting]:
        """Drops items set by hand; called under _alone(), so that they cannot change."""
        pinned = self.by_hand()
        return _settings({item: value for item, value in values.items() if item not in pinned})

    def offer(self, values: Mapping[int, Value]) -> tuple[int, int]:
        with self._alone():
            self._two = tune_entry.offer(self._tune, self.peer.slot, self._ours(values))
        return self._two.active, self._two.other

    def flip(self) -> bool:
        assert self._two is not None
        with self._alone():
            return tune_entry.flip(self._tune, self.peer.slot, self._two)

    def settle(self, values: Mapping[int, Value]) -> None:
        if values:
            with self._alone():
                tune_entry.apply(self._tune, [self.peer.slot], self._ours(values))

    def _counted(self) -> _Counted:
        """Returns the engine's counts; decodes an entry only if it has changed."""
        self.tenancy.check()
        entry = live_latency.whole(self._live, self.peer.slot)
        if self._seen is None or entry != self._seen.entry:
            self._seen = _read(entry)
        return self._seen

    def live(self) -> Mapping[tuple[int, int], Counts]:
        """Returns latencies of live messages, sent and stored here, by item and version."""
        return self._counted().live

    def stored(self) -> Totals:
        return self._counted().stored

    def wait(self, seconds: float) -> None:
        self._pause(seconds)


def plans(tune: tune_entry.Tune) -> tuple[Plan, ...]:
    """Returns the plans of a slot's settings."""
    return tuple(setting.plan for setting in tune if setting.plan)


def pulses(tune: tune_entry.Tune) -> tuple[Pulse, ...]:
    """Returns the store's thresholds of a slot's settings."""
    return tuple(Pulse(setting.minpulse_bytes["store"]) for setting in tune)


def kicks(tune: tune_entry.Tune) -> tuple[Kick, ...]:
    """Returns netTx's thresholds of a slot's settings."""
    return tuple(Kick(setting.minpulse_bytes["net_tx"]) for setting in tune)


def _settings(values: Mapping[int, Value]) -> dict[int, Setting]:
    settings: dict[int, Setting] = {}
    for item, value in values.items():
        index = item % STORE
        setting = settings.get(index, Setting(None, {}))
        plan, pulse = setting.plan, dict(setting.minpulse_bytes)
        if isinstance(value, Plan):
            plan = value
        elif isinstance(value, Pulse):
            pulse["store"] = value.store_bytes
        else:
            pulse["net_tx"] = value.net_tx_bytes
        settings[index] = Setting(plan, pulse)
    return settings


def own_ip(address: Address) -> str:
    """Returns our address towards a peer; "" if there is no route."""
    with socket.socket(address.family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((address.ip, address.port or 9))
        except OSError:
            return ""
        return str(sock.getsockname()[0])

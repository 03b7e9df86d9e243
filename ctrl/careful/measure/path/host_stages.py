"""The stages inside the hosts at either end of a path (P1 section 6).

The stages are hostTx, netTx, netRx, hostRx and store, in this order. Owns the plan of the probes
that reach the peer's store. An answer has the time stamps of consecutive stages. A line through
their smallest differences, over sizes, gives a stage's (g, G). pathchar measures the hops with
probes of the same kind, which end at netRx: XDP answers them.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from careful._abi import lib
from careful.errors import CarefulError, InputError
from careful.measure.path.hops import Path, Segment
from careful.measure.probes.ping import PingReply
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import Line, fit_minima

#: Least rounds of all sizes. Then lines are fitted whenever the rounds have grown by a sixteenth.
ROUNDS_MIN = 6
_FITS = 16
#: Consecutive probes without an answer after which the host counts as gone.
_SILENT_MAX = 12
#: Sufficient half interval of a stage's G, relative.
PRECISION = 0.1
#: Resolution of a stamp, µs.
RESOLUTION_US = 0.05
#: Stages count as one resource if they share a CPU in more than this share of the probes.
_MOST = 0.5

HOST_TX, NET_TX, NET_RX, HOST_RX, STORE = "hostTx", "netTx", "netRx", "hostRx", "store"


class Ask(Protocol):
    """ask(stage, size_bytes, timeout_s): see careful.measure.probes.ping.PingSession."""

    def __call__(self, stage: int, size_bytes: int, timeout_s: float, /) -> PingReply: ...


@dataclass(frozen=True)
class Stage:
    """A stage, or several hops and stages that no answer separates.

    `names`: in order, hops as "hop N"; `g`, `latency`: µs, one of the two (a latency includes
    propagation); `G`: µs per KiB; `line`: the fitted times, round trips for hops; `own`: its time
    alone, one way, None if unknown; `resource`: its thread or CPU, "" if unknown; `reason`: why
    there is no g and G.
    """

    names: tuple[str, ...]
    line: Line
    own: Line | None
    G_us_per_KiB: Estimate | None
    g_us: Estimate | None = None
    latency_us: Estimate | None = None
    address: str = ""
    resource: str = ""
    reason: str = ""

    @property
    def is_bounded(self) -> bool:
        """Reports whether G is withheld and has an upper bound."""
        known = self.own.G_us_per_KiB.high if self.own else 0.0
        return bool(self.reason) and 0 < known < math.inf

    def at(self, size_bytes: int) -> Estimate | None:
        return self.own.estimate_at(size_bytes) if self.own else None


@dataclass
class Stages:
    """The result for both hosts and the path between them.

    stages: from the sender's memory to the receiver's file; scratch: enum careful_scratch; one_way:
    the time of the whole path, over sizes, if both ends share a clock.
    """

    stages: list[Stage]
    scratch: int
    probes_count: int
    lost_count: int
    rounds_count: int
    elapsed_s: float
    one_way: Line | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def sizes_bytes(self) -> tuple[int, int]:
        line = self.stages[0].line
        return int(line.size_min_bytes), int(line.size_max_bytes)

    def sum_us(self, size_bytes: int) -> Estimate | None:
        """Returns the sum of all stages' times for an IP packet, or None if one is unknown."""
        total = Estimate(0.0)
        for stage in self.stages:
            own = stage.at(size_bytes)
            if own is None:
                return None
            total += own
        return total


@dataclass
class _Times:
    """Sizes, and each probe's time in each stage, µs."""

    sizes: list[float] = field(default_factory=list)
    host_tx: list[float] = field(default_factory=list)
    net_tx: list[float] = field(default_factory=list)
    host_rx: list[float] = field(default_factory=list)
    store: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    shared: list[bool] = field(default_factory=list)
    inline: list[bool] = field(default_factory=list)
    scratch: int = 0
    asked_count: int = 0
    silent_count: int = 0  # consecutive, since the last answer

    def add(self, size: int, reply: PingReply) -> None:
        self.asked_count += 1
        self.silent_count = self.silent_count + 1 if reply.status else 0
        if reply.status or not reply.net_tx_us:
            return
        self.scratch = max(self.scratch, reply.scratch)
        self.sizes.append(size)
        self.host_tx.append(reply.host_tx_us)
        self.net_tx.append(reply.net_tx_us)
        self.host_rx.append(reply.host_rx_us)
        self.store.append(reply.store_us)
        self.whole.append(reply.host_tx_us + reply.one_way_us + reply.host_rx_us + reply.store_us)
        self.shared.append(reply.cpus[1] == reply.cpus[2])
        self.inline.append(reply.store_inline)


def measure(
    ask: Ask,
    path: Path,
    *,
    kick_runs_all: bool,
    seconds: float = 8.0,
    timeout_s: float = 1.0,
    background: bool = False,
    one_clock: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Stages:
    """Measures the stages at both ends of a path whose hops are known.

    ask: sends a probe; path: pathchar's result with NET_RX probes, its last hop the host;
    kick_runs_all: our kick runs the whole path, so the path's times include it; seconds: no round
    begins later; one_clock: both ends are one machine. Raises CarefulError if probes cannot be
    sent, ValueError if the path did not reach the host.
    """
    if not path.to_host:
        raise InputError("pathchar's result ends before the host: measure the path again")
    began, times = clock(), _Times()
    sizes = list(path.sizes_bytes)
    dice = random.Random(1)
    rounds, ended_by, settled = 0, "", False
    while not ended_by:
        rounds += 1
        for size in dice.sample(sizes, len(sizes)):
            try:
                reply = ask(lib.CAREFUL_STAGE_STORE, size, timeout_s)
            except CarefulError as error:
                ended_by = str(error)
                break
            times.add(size, reply)
            if times.silent_count == _SILENT_MAX:
                ended_by = f"no answer to {_SILENT_MAX} probes"
                break
            if background and reply.path_us > 0:
                sleep(99 * reply.path_us / 1e6)
        is_due = rounds >= ROUNDS_MIN and rounds % (rounds // _FITS + 1) == 0
        settled = is_due and _settled(times, kick_runs_all)
        if rounds >= ROUNDS_MIN and (clock() - began > seconds or settled):
            break
    result = _stages(path, times, kick_runs_all)
    result = replace(
        result,
        probes_count=times.asked_count,
        lost_count=times.asked_count - len(times.sizes),
        rounds_count=rounds,
        elapsed_s=clock() - began,
    )
    if ended_by:
        text = f"stopped after {result.elapsed_s:.1f} s: {ended_by}"
        result.notes.append(text + ("; the figures are from earlier" if times.sizes else ""))
    else:
        result.notes += _hints(result.stages, path)
    if one_clock and times.sizes:
        result.one_way = fit_minima(times.sizes, times.whole, RESOLUTION_US)
    return result


def background_s(path: Path) -> float:
    """Returns the time of the least number of rounds at 1 % of the path's time, seconds."""
    line = path.segments[-1].line
    return 100 * ROUNDS_MIN * sum(line.at(size) for size in path.sizes_bytes) / 1e6


def _inside(name: str, sizes: list[float], times: list[float], resource: str) -> Stage:
    line = fit_minima(sizes, times, RESOLUTION_US)
    if not line.supported:
        return Stage((name,), line, line, None, resource=resource, reason=line.reason)
    return Stage((name,), line, line, line.G_us_per_KiB, line.intercept_us, resource=resource)


def _hops(segment: Segment, last: bool) -> Stage:
    names = tuple(f"hop {ttl}" for ttl in segment.ttls)
    return Stage(
        (*names, NET_RX) if last else names,
        segment.line,
        segment.own,
        segment.G_us_per_KiB,
        latency_us=segment.latency_us,
        address=segment.address,
        reason=segment.reason,
    )


def _hints(stages: list[Stage], path: Path) -> list[str]:
    """Reports for each stage with only a bound whether a longer measurement would help.

    Leaves out hops with a bound due to the clocks' step: the path has a note about them.
    """
    wide = [one for one in stages if one.is_bounded and not (path.clock_bound and one.address)]
    step = f"the clocks' step of {RESOLUTION_US} µs allows only a bound, so more time will not help"
    more = "time allowed only a bound: a quiet machine or more --time helps"
    hints: dict[str, list[str]] = {}
    for one in wide:
        hint = step if one.line.slope_us_per_byte.is_at_best else more
        hints.setdefault(hint, []).extend(one.names)
    return [f"{', '.join(names)}: {hint}" for hint, names in hints.items()]


def _settled(times: _Times, kick_runs_all: bool) -> bool:
    """Reports whether every line is precise enough, or as precise as the clock allows."""
    if not times.sizes:
        return False
    columns = [times.host_tx, times.host_rx, times.store]
    columns += [] if kick_runs_all else [times.net_tx]  # else a part of the first hop
    lines = [fit_minima(times.sizes, column, RESOLUTION_US) for column in columns]
    return all(
        (line.supported and line.G_us_per_KiB.relative <= PRECISION)
        or line.slope_us_per_byte.is_at_best
        for line in lines
    )


def _stages(path: Path, times: _Times, kick_runs_all: bool) -> Stages:
    scratch = times.scratch
    result = Stages([], scratch, 0, 0, 0, 0.0)
    if not times.sizes:
        result.notes.append("XDP answered, but no probe to the stages behind XDP was answered")
        result.stages = [_hops(segment, segment is path.segments[-1]) for segment in path.segments]
        return result
    local, remote = "our engine's thread", "its engine's thread"
    host_tx = _inside(HOST_TX, times.sizes, times.host_tx, local)
    net_tx = _inside(NET_TX, times.sizes, times.net_tx, local)
    hops = [_hops(segment, segment is path.segments[-1]) for segment in path.segments]
    net_rx = "its engine's CPU" if sum(times.shared) > _MOST * len(times.shared) else "its softirq"
    hops[-1] = replace(hops[-1], resource=net_rx)
    host_rx = _inside(HOST_RX, times.sizes, times.host_rx, remote)
    if net_rx == "its engine's CPU":
        host_rx = replace(host_rx, resource=net_rx)
    middle = [net_tx, *hops]
    if kick_runs_all:
        names = (NET_TX, *hops[0].names)
        middle = [replace(hops[0], names=names, resource=local)]
        result.notes.append("veth: our kick runs the link and netRx, too: all are one resource")
    result.stages = [host_tx, *middle, host_rx]
    if not scratch:
        result.notes.append("store: the peer has no scratch file")
        return result
    inline = sum(times.inline) > _MOST * len(times.inline)
    where = host_rx.resource if inline else "its kernel's I/O worker"
    result.stages.append(_inside(STORE, times.sizes, times.store, where))
    kind = {
        lib.CAREFUL_SCRATCH_FILE: "an unnamed file in its export",
        lib.CAREFUL_SCRATCH_MEMORY: "memory, because it exports nothing for writing",
    }[scratch]
    result.notes.append(f"store: {kind}, through the page cache")
    return result

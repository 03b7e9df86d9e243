"""Latency and G of each hop of a path of ordinary routers, from one end (Jacobson's pathchar).

Owns the plan of the probes: which hops answer, rounds of sizes until every interval is narrow
enough (Downey's adaptive stopping), and what the differences of neighbouring lines say. The
probes themselves are passed in. A hop's intercept holds its overhead and its propagation:
it is a latency, never g.
"""

from __future__ import annotations

import errno
import itertools
import math
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from careful.address import Address
from careful.errors import CarefulError
from careful.measure.estimate import Estimate
from careful.measure.line import RELATIVE_MAX, Line, fit_minima
from careful.measure.probe import SIZE_MAX_BYTES, SIZE_MIN_BYTES, Answer, Prober, Reply

#: ICMP errors quote up to 548 bytes: larger probes have answers of one size.
LEAST_BYTES = 600
#: Rounds that pathchar would make at every hop, whatever it finds: the plan we save from.
FIXED_ROUNDS = 32
ROUNDS_MIN = 3
#: Probes that a hop may leave unanswered before it is called silent, and silent hops in a row
#: before the rest of the path is.
TRIES = 3
SILENT_HOPS_MAX = 4
#: A hop that answers fewer than this share is not measured.
ANSWERED_MIN = 0.6
#: Median shift of a round's times that means that the path has changed.
_MOVED = 0.10
#: What a path MTU may be where too large probes vanish without a word, bytes.
_MTUS = (9000, 4352, 1500, 1492, 1400, 1280)


class Probe(Protocol):
    """probe(ttl, size_bytes, timeout_s): see careful.measure.probe.Prober."""

    def __call__(self, ttl: int, size_bytes: int, timeout_s: float, /) -> Reply: ...


@dataclass(frozen=True)
class Options:
    """How to measure.

    sizes_count: sizes between the least and the largest; min_bytes, max_bytes: of the probes as
    IP packets; precision: half of G's interval over G at which a hop is done; seconds: after
    which no further round begins; timeout_s: longest wait for an answer; background: pauses so
    that no link is busy with probes more than 1 % of the time; resolution_us: of the clocks.
    """

    sizes_count: int = 12
    min_bytes: int = LEAST_BYTES
    max_bytes: int = SIZE_MAX_BYTES
    max_hops: int = 30
    precision: float = 0.02
    rounds_max: int = FIXED_ROUNDS
    seconds: float = 25.0
    timeout_s: float = 1.0
    background: bool = False
    resolution_us: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not 4 <= self.sizes_count <= 100:
            raise ValueError(f"{self.sizes_count} sizes: must be 4 to 100")
        if not SIZE_MIN_BYTES <= self.min_bytes < self.max_bytes <= SIZE_MAX_BYTES:
            raise ValueError(
                f"sizes from {self.min_bytes} to {self.max_bytes} bytes: must ascend, "
                f"from at least {SIZE_MIN_BYTES} to at most {SIZE_MAX_BYTES}"
            )
        if not 1 <= self.max_hops <= 255:
            raise ValueError(f"{self.max_hops} hops: must be 1 to 255")
        if not (
            0 < self.precision < 1 and 0 < self.seconds < math.inf and 0 < self.timeout_s < math.inf
        ):
            raise ValueError("precision must be between 0 and 1, times above 0")


@dataclass
class Hop:
    """A TTL, who answered at it, and the round trips over sizes."""

    ttl: int
    address: str = ""
    reached: bool = False
    reply_bytes: int = 0
    sent: int = 0
    answered: int = 0
    round_answered: int = 0  # of the last round, with the hop's address
    longest_us: float = 0.0
    note: str = ""
    usable: bool = True
    addresses: set[str] = field(default_factory=set)
    sizes_bytes: list[float] = field(default_factory=list)
    times_us: list[float] = field(default_factory=list)
    line: Line | None = None

    @property
    def answered_share(self) -> float:
        """Of the probes sent."""
        return self.answered / self.sent if self.sent else 0.0


@dataclass(frozen=True)
class Segment:
    """What lies between two hops that were measured.

    ttls: the hops it ends at, more than one where silent ones are merged into it; G: µs per KiB;
    latency: µs one way, overhead and propagation of an IP packet of no bytes; line: round trips
    up to here; own: time one way of what lies between alone, over the bytes of an IP packet,
    with intervals though they may be too wide for a G; None where the lines say nothing;
    reason: why there is no figure.
    """

    ttls: tuple[int, ...]
    address: str
    G_us_per_KiB: Estimate | None
    latency_us: Estimate | None
    line: Line
    own: Line | None = None
    reason: str = ""


@dataclass
class Path:
    """All that was found of a path."""

    hops: list[Hop]
    segments: list[Segment]
    reached: bool
    mtu_bytes: int
    sizes_bytes: list[int]
    rounds_count: int
    probes_count: int
    fixed_plan_count: int
    elapsed_s: float
    settled: bool
    notes: list[str]

    @property
    def saving_share(self) -> float:
        """Share of a fixed plan's probes that were not needed."""
        return 1 - self.probes_count / self.fixed_plan_count if self.fixed_plan_count else 0.0


class Pathchar:
    """One measurement; `run` makes it."""

    def __init__(
        self,
        probe: Probe,
        interface_mtu_bytes: int,
        options: Options | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options or Options()
        self._probe, self._clock, self._sleep = probe, clock, sleep
        self._mtu = min(interface_mtu_bytes, self.options.max_bytes)
        self._random = random.Random(self.options.seed)
        self._notes: list[str] = []
        self._probes = 0
        self._own_us: dict[float, float] = {}  # least time that a send of a size took this host
        self.hops: list[Hop] = []

    def run(self) -> Path:
        """Find the hops, then measure those that answer."""
        began = self._clock()
        self._discover()
        measured = [hop for hop in self.hops if hop.usable]
        if not measured:
            return self._path([], 0, began, settled=False)
        self._fit_mtu(measured[-1])
        sizes = self._sizes()
        rounds, settled = self._rounds(sizes, began)
        path = self._path(sizes, rounds, began, settled)
        if not settled and path.segments:
            self._notes.append("stopped before every interval was as narrow as asked for")
        return path

    # --- which hops there are

    def _ask(self, hop: Hop, size_bytes: int, timeout_s: float | None = None) -> Reply:
        if timeout_s is None:
            # Once a hop has answered, an answer that takes much longer is lost.
            known_s = 4 * hop.longest_us / 1e6 + 0.05 if hop.longest_us else self.options.timeout_s
            timeout_s = min(self.options.timeout_s, known_s)
        reply = self._probe(hop.ttl, size_bytes, timeout_s)
        self._probes += 1
        hop.sent += 1
        if reply.answer in (Answer.EXPIRED, Answer.REACHED, Answer.REFUSED):
            hop.answered += 1
            hop.longest_us = max(hop.longest_us, reply.rtt_us)
            hop.addresses.add(reply.address)
        if self.options.background:
            self._sleep(99 * (reply.rtt_us / 1e6 or timeout_s))
        return reply

    def _discover(self) -> None:
        silent = 0
        for ttl in range(1, self.options.max_hops + 1):
            hop = Hop(ttl)
            self.hops.append(hop)
            reply = Reply(Answer.SILENT)
            for _ in range(TRIES):
                reply = self._ask(hop, self.options.min_bytes, self.options.timeout_s)
                if reply.answer is not Answer.SILENT:
                    break
            hop.address, hop.reply_bytes = reply.address, reply.reply_bytes
            hop.longest_us *= 4  # of the smallest probe: larger ones take longer
            if reply.answer is Answer.SILENT:
                hop.usable, hop.note = False, "no answer"
                silent += 1
                if silent == SILENT_HOPS_MAX:
                    break
                continue
            silent = 0
            if reply.answer is Answer.REACHED:
                hop.reached = True
                return
            if reply.answer is Answer.REFUSED:
                hop.note = f"says unreachable (ICMP code {reply.code})"
                self._notes.append(f"hop {ttl}, {reply.address}, {hop.note}: the path ends there")
                return
        while self.hops and self.hops[-1].note == "no answer":
            self.hops.pop()
        self._notes.append(f"the host does not answer; nobody does beyond hop {len(self.hops)}")

    def _fit_mtu(self, last: Hop) -> None:
        """The largest probe that gets as far as the last hop."""
        smaller = [mtu for mtu in _MTUS if mtu < self._mtu]
        for _ in range(8):
            for _ in range(TRIES):
                reply = self._ask(last, self._mtu, self.options.timeout_s)
                if reply.answer is not Answer.SILENT:
                    break
            if reply.answer not in (Answer.SILENT, Answer.TOO_BIG):
                last.longest_us = max(last.longest_us, reply.rtt_us)
                return
            said = reply.mtu_bytes if 0 < reply.mtu_bytes < self._mtu else 0
            smaller = [mtu for mtu in smaller if mtu < (said or self._mtu)]
            if not said and not smaller:
                return
            if not said:
                self._notes.append(f"probes of {self._mtu} bytes vanish: smaller ones are used")
            self._mtu = said or smaller[0]

    def _sizes(self) -> list[int]:
        low, high, count = self.options.min_bytes, self._mtu, self.options.sizes_count
        if high - low < 2 * count:
            raise ValueError(
                f"probes of {low} to {high} bytes are too much alike: lower --min-bytes"
            )
        return [round(low + (high - low) * k / (count - 1)) for k in range(count)]

    # --- rounds

    def _rounds(self, sizes: list[int], began: float) -> tuple[int, bool]:
        """Rounds made, and whether every hop is as well known as was asked for."""
        wanted = {hop.ttl for hop in self.hops if hop.usable}
        moved = False
        for number in range(1, self.options.rounds_max + 1):
            for hop in self.hops:
                if hop.usable and hop.ttl in wanted:
                    moved |= self._round(hop, sizes)
            self._limited(sizes)
            if moved:
                moved = False
                self._start_anew()
            if self._enough():
                wanted = self._unsettled()
            else:
                wanted = {hop.ttl for hop in self.hops if hop.usable}
            if not wanted:
                return number, True
            if self._clock() - began > self.options.seconds:
                return number, False
        return self.options.rounds_max, False

    def _round(self, hop: Hop, sizes: list[int]) -> bool:
        """One probe of each size, in random order; whether the hop's times have moved."""
        shifts = []
        hop.round_answered = 0
        for size in self._random.sample(sizes, len(sizes)):
            reply = self._ask(hop, size)
            if reply.answer not in (Answer.EXPIRED, Answer.REACHED, Answer.REFUSED):
                continue
            if reply.address != hop.address:
                continue  # another router's: counted in addresses, of no use for this line
            self._own_us[size] = min(self._own_us.get(size, reply.own_us), reply.own_us)
            if hop.line is not None and hop.line.supported:
                shifts.append((reply.rtt_us - self._own_us[size]) / hop.line.at(size) - 1)
            hop.round_answered += 1
            hop.reply_bytes = max(hop.reply_bytes, reply.reply_bytes)
            hop.sizes_bytes.append(size)
            hop.times_us.append(reply.rtt_us)
        if hop.sizes_bytes:
            # Copying into the kernel is ours, not the first hop's.
            times_us = [
                time_us - self._own_us[size]
                for size, time_us in zip(hop.sizes_bytes, hop.times_us, strict=True)
            ]
            hop.line = fit_minima(hop.sizes_bytes, times_us, self.options.resolution_us)
        shifts.sort()
        shift = shifts[len(shifts) // 2] if len(shifts) >= len(sizes) / 2 else 0.0
        if abs(shift) > _MOVED:
            text = f"round trips to hop {hop.ttl} moved by {shift:+.0%} in the middle"
            self._notes.append(f"{text}: the path changed or is loaded; what was before is dropped")
            return True
        return False

    def _start_anew(self) -> None:
        for hop in self.hops:
            hop.sizes_bytes.clear()
            hop.times_us.clear()
            hop.line = None

    def _enough(self) -> bool:
        """Whether every hop has the samples that a verdict needs."""
        least = (ROUNDS_MIN - 0.5) * self.options.sizes_count
        return all(len(hop.sizes_bytes) >= least for hop in self.hops if hop.usable)

    def _unsettled(self) -> set[int]:
        """Hops whose lines need more samples: those at either end of an unsettled segment."""
        found: set[int] = set()
        ends = [0, *(hop.ttl for hop in self.hops if hop.usable)]
        for segment, (before, after) in zip(
            self._segments(), itertools.pairwise(ends), strict=True
        ):
            G = segment.G_us_per_KiB
            if G is None or G.relative > self.options.precision:
                found |= {before, after}
        return found - {0}

    def _limited(self, sizes: list[int]) -> None:
        """After a round: hops that answered too little are not measured; says why."""
        for hop in self.hops:
            share = hop.round_answered / len(sizes)
            if not hop.usable or share >= ANSWERED_MIN:
                continue
            if len(hop.addresses) > 1:
                known = ", ".join(sorted(hop.addresses))
                hop.note = f"answers from several addresses ({known}): several paths"
            elif self._answers_after_a_pause(hop):
                hop.note = (
                    f"ICMP rate-limited: {share:.0%} of the probes answered; "
                    "sysctl net.ipv4.icmp_ratelimit=0 there would let it be measured"
                )
            else:
                hop.note = f"{share:.0%} of the probes answered"
            hop.usable = False
            merged = "" if hop is self.hops[-1] else "; merged with the next"
            self._notes.append(f"hop {hop.ttl}, {hop.address}: {hop.note}{merged}")

    def _answers_after_a_pause(self, hop: Hop) -> bool:
        """A rate limit's sign: silent when asked fast, and not after a pause."""
        size = self.options.min_bytes
        answers = []
        for _ in range(2):
            self._sleep(1.2)
            answers += [self._ask(hop, size).answer is not Answer.SILENT]
        fast = [self._ask(hop, size).answer is not Answer.SILENT for _ in range(6)]
        return all(answers) and sum(fast) <= 3

    # --- what it means

    def _segments(self) -> list[Segment]:
        found = []
        before: Hop | None = None
        merged: list[int] = []
        for hop in self.hops:
            merged.append(hop.ttl)
            if not hop.usable or hop.line is None:
                continue
            found.append(_segment(tuple(merged), hop, before))
            before, merged = hop, []
        return found

    def _path(self, sizes: list[int], rounds: int, began: float, settled: bool) -> Path:
        usable = sum(hop.usable for hop in self.hops)
        return Path(
            hops=self.hops,
            segments=self._segments(),
            reached=bool(self.hops) and self.hops[-1].reached,
            mtu_bytes=self._mtu,
            sizes_bytes=sizes,
            rounds_count=rounds,
            probes_count=self._probes,
            fixed_plan_count=FIXED_ROUNDS * len(sizes) * usable,
            elapsed_s=self._clock() - began,
            settled=settled,
            notes=self._notes,
        )


def _segment(ttls: tuple[int, ...], hop: Hop, before: Hop | None) -> Segment:
    """From the lines at its two ends; an answer of r bytes crosses the same links back."""
    line = hop.line
    assert line is not None
    bad = [one for one in (line, before.line if before else None) if one and not one.supported]
    own = _own(hop, before)
    if bad:
        return Segment(ttls, hop.address, None, None, line, own, bad[0].reason)
    G, latency = line.G_us_per_KiB, line.estimate_at(-hop.reply_bytes)
    if before is not None and before.line is not None:
        G = G - before.line.G_us_per_KiB
        latency = latency - before.line.estimate_at(-before.reply_bytes)
    reason = ""
    if G.relative > RELATIVE_MAX or G.value <= 0:
        reason = f"the interval is wide: {G.low:.3g} to {G.high:.3g} µs/KiB"
    return Segment(ttls, hop.address, None if reason else G, latency * 0.5, line, own, reason)


def _own(hop: Hop, before: Hop | None) -> Line | None:
    """The time one way of what lies between two hops, without the way there and back."""
    line = hop.line
    assert line is not None
    # Half a round trip of such a packet does not depend on the slope: known best there.
    at_bytes = (line.middle_bytes + hop.reply_bytes) / 2
    middle_us, slope, residual_us = _one_way(hop, at_bytes), line.slope_us_per_byte, 0.0
    if before is not None:
        assert before.line is not None
        middle_us -= _one_way(before, at_bytes)
        slope -= before.line.slope_us_per_byte
        residual_us = before.line.residual_us
    if not (math.isfinite(middle_us.se) and math.isfinite(slope.se)):
        return None
    return replace(
        line,
        middle_us=middle_us,
        middle_bytes=at_bytes,
        slope_us_per_byte=slope,
        residual_us=math.hypot(line.residual_us, residual_us),
    )


def _one_way(hop: Hop, size_bytes: float) -> Estimate:
    """The time to a hop, µs: a round trip less what an answer of so many bytes took back."""
    line = hop.line
    assert line is not None
    away_bytes = size_bytes - (line.middle_bytes + hop.reply_bytes) / 2
    return line.middle_us * 0.5 + line.slope_us_per_byte * away_bytes


def measure(address: Address, options: Options) -> Path:
    """The hops to a host. Raises CarefulError where nobody answers or probes cannot be sent."""
    if address.family != socket.AF_INET:
        raise CarefulError(errno.EAFNOSUPPORT, "pathchar goes over IPv4 alone", str(address))
    with Prober(address.ip) as prober:
        path = Pathchar(prober.probe, prober.interface_mtu_bytes(), options).run()
    if not path.segments and not path.hops:
        text = "neither it nor a router on the way answers probes (ICMP filtered?)"
        raise CarefulError(errno.ETIMEDOUT, text, str(address))
    return path

"""Latency and G of each hop of a path of ordinary routers, from one end (Jacobson's pathchar).

Owns the plan of the probes: which hops answer, and rounds of sizes until every interval is narrow
enough (Downey's adaptive stopping). Differences of neighbouring lines give the figures. A hop's
intercept includes its overhead and its propagation: it is a latency, never g.
"""

from __future__ import annotations

import errno
import itertools
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from careful.address import Address
from careful.errors import CarefulError, InputError
from careful.measure.path.hops import Hop, Path, Segment, between, losses
from careful.measure.probes.udp import (
    IPV4,
    SIZE_MAX_BYTES,
    SIZE_MIN_BYTES,
    Answer,
    Family,
    Prober,
    Reply,
)
from careful.measure.statistics.line import fit_minima

LEAST_BYTES = IPV4.least_bytes
#: Rounds that the original pathchar sends to every hop; a saving is relative to them.
FIXED_ROUNDS = 32
ROUNDS_MIN = 3
#: A hop counts as silent after this many unanswered probes. After this many silent hops in a row,
#: the rest of the path counts as silent.
TRIES = 3
SILENT_HOPS_MAX = 4
#: Least share of answers for which a hop is measured.
ANSWERED_MIN = 0.6
#: The path has changed if a round's times shifted by this share, in the median.
_MOVED = 0.10
#: A round gives up after this many consecutive probes without an answer.
_GIVE_UP = 6
#: Likely path MTUs, tried if large probes vanish silently, bytes.
_MTUS = (9000, 4352, 1500, 1492, 1400, 1280)


class Probe(Protocol):
    """probe(ttl, size_bytes, timeout_s): see careful.measure.probes.udp.Prober."""

    def __call__(self, ttl: int, size_bytes: int, timeout_s: float, /) -> Reply: ...


@dataclass(frozen=True)
class Options:
    """Options of a measurement.

    `sizes_count`: number of sizes; `min_bytes`, `max_bytes`: probes as IP packets; `precision`:
    sufficient half interval of a hop's G, relative; `seconds`: no round begins later; `timeout_s`:
    longest wait for an answer; `background`: keep every link busy at most 1 % of the time;
    `resolution_us`: of the clocks.
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
            raise InputError(f"{self.sizes_count} sizes: must be 4 to 100")
        if not SIZE_MIN_BYTES <= self.min_bytes < self.max_bytes <= SIZE_MAX_BYTES:
            raise InputError(
                f"sizes from {self.min_bytes} to {self.max_bytes} bytes: must ascend, "
                f"from at least {SIZE_MIN_BYTES} to at most {SIZE_MAX_BYTES}"
            )
        if not 1 <= self.max_hops <= 255:
            raise InputError(f"{self.max_hops} hops: must be 1 to 255")
        if not (
            0 < self.precision < 1 and 0 < self.seconds < math.inf and 0 < self.timeout_s < math.inf
        ):
            raise InputError("precision must be between 0 and 1, and times must be positive")


class Pathchar:
    """One measurement; `run` makes it."""

    def __init__(
        self,
        probe: Probe,
        interface_mtu_bytes: int,
        options: Options | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        family: Family = IPV4,
    ) -> None:
        self.options = options or Options()
        self._family = family
        self._probe, self._clock, self._sleep = probe, clock, sleep
        self._mtu = min(interface_mtu_bytes, self.options.max_bytes)
        self._random = random.Random(self.options.seed)
        self._notes: list[str] = []
        self._probes = self._discovery = self._rounds_made = 0
        self._longest_s = self._largest_us = self._began = 0.0
        self._clock_bound = False
        self._own_us: dict[float, float] = {}  # least time of this host to send a probe, by size
        self.hops: list[Hop] = []

    def run(self) -> Path:
        began = self._began = self._clock()
        self._discover()
        measured = [hop for hop in self.hops if hop.usable]
        if not measured:
            self._discovery = self._probes
            return self._path([], 0, began, settled=False)
        self._fit_mtu(measured[-1])
        sizes = self._sizes()
        self._discovery = self._probes
        self._check_time(sizes, measured)
        try:
            rounds, settled = self._rounds(sizes, began)
        except CarefulError as error:
            if not self._rounds_made:
                raise
            rounds, settled = self._rounds_made, False
            text = f"probes cannot be sent since {self._now_s():.1f} s ({error})"
            self._notes.append(f"{text}: the figures are from earlier")
        path = self._path(sizes, rounds, began, settled)
        if self._clock_bound:
            path.notes.append(
                f"hops: {path.elapsed_s:.2g} s were enough: the clocks' step of "
                f"{self.options.resolution_us:g} µs limits their intervals, so more time will not "
                "help"
            )
        elif not settled and path.segments:
            path.notes.append("stopped before every interval was narrow enough (--precision)")
        return path

    # --- discovery

    def _ask(self, hop: Hop, size_bytes: int, timeout_s: float | None = None) -> Reply:
        if timeout_s is None:
            # An answer that takes much longer than the hop's others counts as lost.
            known_s = 4 * hop.longest_us / 1e6 + 0.05 if hop.longest_us else self.options.timeout_s
            timeout_s = min(self.options.timeout_s, known_s)
        reply = self._probe(hop.ttl, size_bytes, timeout_s)
        self._probes += 1
        hop.sent += 1
        if reply.answer is Answer.REFUSED and not hop.addresses:
            hop.refuses = True  # its first answer
        if hop.answers(reply):
            hop.answered += 1
            hop.longest_us = max(hop.longest_us, reply.rtt_us)
            hop.addresses.add(reply.address)
            hop.refused, hop.heard_s = None, self._now_s()
        elif reply.answer is Answer.REFUSED:
            hop.refused = reply
        self._longest_s = max(self._longest_s, reply.rtt_us / 1e6)
        if self.options.background:
            # An unanswered probe is not on the path for the whole timeout, but as long as others.
            unheard_s = min(timeout_s, 4 * self._longest_s or timeout_s)
            self._sleep(99 * (reply.rtt_us / 1e6 or unheard_s))
        return reply

    def _now_s(self) -> float:
        return self._clock() - self._began

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
            hop.first_us = hop.longest_us
            hop.longest_us *= 4  # larger probes take longer
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
                if ttl > 1 and reply.address == self.hops[-2].address:
                    hop = self._drop_last()
                hop.note = f"reports unreachable (ICMP code {reply.code})"
                where = f"hop {hop.ttl}, {reply.address}"
                self._notes.append(f"{where}, {hop.note}: the path ends there")
                return
        while self.hops and self.hops[-1].note == "no answer":
            self.hops.pop()
        self._notes.append(f"the host does not answer; no hop answers beyond hop {len(self.hops)}")

    def _drop_last(self) -> Hop:
        """Returns the hop that answers for the last TTL, and drops that TTL."""
        self.hops.pop()
        return self.hops[-1]

    def _check_time(self, sizes: list[int], hops: list[Hop]) -> None:
        """Raises InputError if the least number of rounds does not fit in the background's time."""
        first_us = hops[-1].first_us
        if not self.options.background or not first_us:
            return
        factor = (1 + max(self._largest_us / first_us, 1.0)) / 2
        each_us = sum(hop.first_us for hop in hops) * factor * len(sizes)
        needed_s = 100 * ROUNDS_MIN * each_us / 1e6
        if needed_s > self.options.seconds:
            raise InputError(
                f"in the background {ROUNDS_MIN} rounds of {len(sizes)} sizes take about "
                f"{needed_s:.0f} s on this path: give --time {math.ceil(1.2 * needed_s)}, "
                "or fewer --sizes"
            )

    def _fit_mtu(self, last: Hop) -> None:
        smaller = [mtu for mtu in _MTUS if mtu < self._mtu]
        for _ in range(8):
            for _ in range(TRIES):
                reply = self._ask(last, self._mtu, self.options.timeout_s)
                if reply.answer is not Answer.SILENT:
                    break
            if reply.answer not in (Answer.SILENT, Answer.TOO_BIG):
                last.longest_us = max(last.longest_us, reply.rtt_us)
                self._largest_us = reply.rtt_us
                return
            reported = reply.mtu_bytes if 0 < reply.mtu_bytes < self._mtu else 0
            smaller = [mtu for mtu in smaller if mtu < (reported or self._mtu)]
            if not reported and not smaller:
                return
            if not reported:
                self._notes.append(f"probes of {self._mtu} bytes vanish: smaller probes are used")
            self._mtu = reported or smaller[0]

    def _sizes(self) -> list[int]:
        low, high, count = self.options.min_bytes, self._mtu, self.options.sizes_count
        if high - low < 2 * count:
            advice = "lower --min-bytes" if low > self._family.least_bytes else "the MTU is small"
            text = f"the range {low} to {high} bytes is too narrow for {count} sizes"
            raise InputError(f"{text}: {advice}")
        return [round(low + (high - low) * k / (count - 1)) for k in range(count)]

    # --- rounds

    def _rounds(self, sizes: list[int], began: float) -> tuple[int, bool]:
        """Returns the number of rounds, and True if every hop is precise enough."""
        wanted = {hop.ttl for hop in self.hops if hop.asked}
        has_changed = False
        for number in range(1, self.options.rounds_max + 1):
            for hop in self.hops:
                if hop.asked and hop.ttl in wanted:
                    has_changed |= self._round(hop, sizes)
            self._check_answers(sizes)
            if has_changed:
                has_changed = False
                is_last = self._now_s() > self.options.seconds or number == self.options.rounds_max
                self._restart(keep=is_last)
            self._rounds_made = number
            asked = {hop.ttl for hop in self.hops if hop.asked}
            unsettled = self._unsettled() if self._has_enough() else asked
            wanted = unsettled & asked
            self._clock_bound = bool(wanted) and self._has_enough() and self._is_clock_bound()
            if self._clock_bound:
                return number, False
            if not wanted:
                return number, not any(hop.lost_s is not None for hop in self.hops)
            if self._clock() - began > self.options.seconds:
                return number, False
        return self.options.rounds_max, False

    def _round(self, hop: Hop, sizes: list[int]) -> bool:
        """Sends a probe of each size, in random order; reports whether the hop's times shifted."""
        shifts = []
        hop.round_answered = unanswered = 0
        for size in self._random.sample(sizes, len(sizes)):
            reply = self._ask(hop, size)
            if not hop.answers(reply):
                unanswered += 1
                if unanswered == _GIVE_UP:
                    break
                continue
            unanswered = 0
            if reply.address != hop.address:
                continue  # another router answered, which is useless for this line
            self._own_us[size] = min(self._own_us.get(size, reply.own_us), reply.own_us)
            if hop.line is not None and hop.line.supported:
                shifts.append((reply.rtt_us - self._own_us[size]) / hop.line.at(size) - 1)
            hop.round_answered += 1
            hop.reply_bytes = max(hop.reply_bytes, reply.reply_bytes)
            hop.sizes_bytes.append(size)
            hop.times_us.append(reply.rtt_us)
        if len(hop.sizes_bytes) >= hop.fit_at_count > 0 or (hop.sizes_bytes and not hop.line):
            self._fit(hop)
        shifts.sort()
        shift = shifts[len(shifts) // 2] if len(shifts) >= len(sizes) / 2 else 0.0
        if abs(shift) > _MOVED:
            text = f"round trips to hop {hop.ttl} changed by {shift:+.0%} halfway"
            self._notes.append(
                f"{text}: the path changed or is loaded; earlier samples are dropped"
            )
            return True
        return False

    def _fit(self, hop: Hop) -> None:
        # The time to copy a probe into the kernel does not belong to the first hop.
        times_us = [
            time_us - self._own_us[size]
            for size, time_us in zip(hop.sizes_bytes, hop.times_us, strict=True)
        ]
        if len(times_us) > FIXED_ROUNDS * self.options.sizes_count:
            hop.fit_at_count = len(times_us) * 17 // 16  # fits cost time in a long measurement
        hop.line = fit_minima(hop.sizes_bytes, times_us, self.options.resolution_us)

    def _restart(self, keep: bool) -> None:
        """Drops samples of the earlier path; keep: keeps the last round."""
        for hop in self.hops:
            old = len(hop.sizes_bytes) - (hop.round_answered if keep else 0)
            del hop.sizes_bytes[:old]
            del hop.times_us[:old]
            hop.line = None
            if hop.sizes_bytes:
                self._fit(hop)
            hop.usable &= hop.lost_s is None

    def _has_enough(self) -> bool:
        least = (ROUNDS_MIN - 0.5) * self.options.sizes_count
        return all(len(hop.sizes_bytes) >= least for hop in self.hops if hop.asked)

    def _unsettled(self) -> set[int]:
        """Returns hops that need more samples: the ends of each unsettled segment."""
        ttls: set[int] = set()
        ends = [0, *(hop.ttl for hop in self.hops if hop.usable)]
        for segment, (before, after) in zip(
            self._segments(), itertools.pairwise(ends), strict=True
        ):
            G = segment.G_us_per_KiB
            if G is None or G.relative > self.options.precision:
                ttls |= {before, after}
        return ttls - {0}

    def _is_clock_bound(self) -> bool:
        """Reports whether more probes can at best halve the intervals that are too wide."""
        for segment in self._segments():
            known = segment.G_us_per_KiB or (segment.own and segment.own.G_us_per_KiB)
            if not known:
                return False
            spread = known.half - known.slack
            highest = max(known.value + spread, 0.0)
            if known.relative > self.options.precision and (
                spread > known.slack or known.slack <= self.options.precision * highest
            ):
                return False
        return True

    def _check_answers(self, sizes: list[int]) -> None:
        """Drops hops that answered too few probes of a round, with a note."""
        lost: list[Hop] = []
        for hop in self.hops:
            share = hop.round_answered / len(sizes)
            if not hop.asked or share >= ANSWERED_MIN:
                continue
            if hop.refused or (lost and not hop.round_answered):
                lost.append(hop)
                continue
            heard: list[bool] = []
            if len(hop.addresses) > 1:
                known = ", ".join(sorted(hop.addresses))
                hop.note = f"answers from several addresses ({known}): several paths"
            else:
                heard = self._probe_after_pause(hop)
                hop.note = f"{share:.0%} of the probes answered"
            if hop.refused or (heard and not any(heard)):
                lost.append(hop)
                continue
            if heard and all(heard[:2]) and sum(heard[2:]) <= 3:
                # Typical of a rate limit: no answer to fast probes, but an answer after a pause.
                hop.note = (
                    f"ICMP rate-limited: {share:.0%} of the probes answered; to measure the hop: "
                    f"sysctl {self._family.limit}=0 there"
                )
            hop.usable = False
            merged = "" if hop is self.hops[-1] else "; merged with the next hop"
            self._notes.append(f"hop {hop.ttl}, {hop.address}: {hop.note}{merged}")
        for hop in lost:  # earlier figures are kept
            hop.lost_s = hop.heard_s
            hop.note = f"no answer since {hop.heard_s:.1f} s"
            hop.usable = hop.line is not None

    def _probe_after_pause(self, hop: Hop) -> list[bool]:
        """Sends two probes after a pause each, then six at once; returns which were answered."""
        heard = []
        for k in range(8):
            if k < 2:
                self._sleep(1.2)
            heard.append(hop.answers(self._ask(hop, self.options.min_bytes)))
        return heard

    # --- results

    def _segments(self) -> list[Segment]:
        segments = []
        before: Hop | None = None
        merged: list[int] = []
        for hop in self.hops:
            merged.append(hop.ttl)
            if not hop.usable or hop.line is None:
                continue
            segments.append(between(tuple(merged), hop, before))
            before, merged = hop, []
        return segments

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
            discovery_count=self._discovery,
            fixed_plan_count=FIXED_ROUNDS * len(sizes) * usable,
            elapsed_s=self._clock() - began,
            settled=settled,
            notes=self._notes + losses(self.hops),
            first_bytes=self.options.min_bytes,
            clock_bound=self._clock_bound,
        )


def fitting(options: Options, family: Family) -> Options:
    """Raises the least size, over IPv6 only, so that all answers have one size."""
    if options.min_bytes >= family.least_bytes or family is IPV4:
        return options
    return replace(options, min_bytes=family.least_bytes)


def measure(address: Address, options: Options) -> Path:
    """Measures the hops to a host.

    Raises CarefulError if too few probes are answered or probes cannot be sent.
    """
    with Prober(address.ip, address.scope) as prober:
        mtu_bytes = prober.interface_mtu_bytes()
        options = fitting(options, prober.family)
        path = Pathchar(prober.probe, mtu_bytes, options, family=prober.family).run()
    if (why_nothing := path.why_nothing) and not any(hop.first_us for hop in path.hops):
        raise CarefulError(errno.ETIMEDOUT, why_nothing, str(address))
    return path

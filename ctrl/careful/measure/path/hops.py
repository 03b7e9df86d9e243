"""The hops of a path, and the figures between them, derived from round trips to each hop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from careful.measure.probes.udp import Answer, Reply
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import RELATIVE_MAX, Line


@dataclass
class Hop:
    """A TTL, the router that answers it, and the round trips over sizes.

    `refuses`: the hop has always answered "unreachable"; `refused`: an "unreachable" since its last
    proper answer; `heard_s`: time of its last answer; `lost_s`: the same once it no longer answers,
    both since the start; `first_us`: the round trip that found the hop; `round_answered`: answers
    in the last round from the hop's address; `fit_at_count`: samples at which to fit again.
    """

    ttl: int
    address: str = ""
    reached: bool = False
    reply_bytes: int = 0
    sent: int = 0
    answered: int = 0
    round_answered: int = 0
    longest_us: float = 0.0
    first_us: float = 0.0
    note: str = ""
    usable: bool = True
    refuses: bool = False
    refused: Reply | None = None
    heard_s: float = 0.0
    lost_s: float | None = None
    addresses: set[str] = field(default_factory=set)
    sizes_bytes: list[float] = field(default_factory=list)
    times_us: list[float] = field(default_factory=list)
    line: Line | None = None
    fit_at_count: int = 1

    @property
    def answered_share(self) -> float:
        return self.answered / self.sent if self.sent else 0.0

    @property
    def asked(self) -> bool:
        return self.usable and self.lost_s is None

    def answers(self, reply: Reply) -> bool:
        """Reports whether a reply is the hop's own answer."""
        if reply.answer is Answer.REFUSED:
            return self.refuses
        return reply.answer in (Answer.EXPIRED, Answer.REACHED)


@dataclass(frozen=True)
class Segment:
    """The part between two measured hops.

    `ttls`: the hops where it ends, more than one if silent hops are merged into it; `G`: µs per
    KiB; `latency`: µs one way, overhead and propagation of an empty IP packet; `line`: round trips
    up to its end; `own`: time one way of this part alone, over the bytes of an IP packet, even with
    an interval too wide for a G, None if unknown; `reason`: why there is no figure; `lost_s`: the
    time of its last answer, if it no longer answers.
    """

    ttls: tuple[int, ...]
    address: str
    G_us_per_KiB: Estimate | None
    latency_us: Estimate | None
    line: Line
    own: Line | None = None
    reason: str = ""
    lost_s: float | None = None


@dataclass
class Path:
    """The result for a path.

    probes_count: all probes; discovery_count: the probes that found the hops and the MTU;
    fixed_plan_count: probes of FIXED_ROUNDS of each size to each hop; first_bytes: size of the
    first probes; clock_bound: the clocks' step, not the number of probes, limits the figures.
    """

    hops: list[Hop]
    segments: list[Segment]
    reached: bool
    mtu_bytes: int
    sizes_bytes: list[int]
    rounds_count: int
    probes_count: int
    discovery_count: int
    fixed_plan_count: int
    elapsed_s: float
    settled: bool
    notes: list[str]
    first_bytes: int = 0
    clock_bound: bool = False

    @property
    def to_host(self) -> bool:
        if not (self.reached and self.segments):
            return False
        last = self.segments[-1]
        return last.ttls[-1] == self.hops[-1].ttl and last.lost_s is None

    @property
    def why_nothing(self) -> str:
        """Returns why no hop was measured; "" if a hop was measured."""
        if self.segments:
            return ""
        if not self.hops:
            return "neither the host nor a router on the way answers probes (ICMP filtered?)"
        text = [f"hop {hop.ttl}, {hop.address}: {hop.note}" for hop in self.hops if hop.address]
        return "no hop could be measured: " + "; ".join(text)

    @property
    def saving_share(self) -> float | None:
        """Share of a fixed plan's probes that was saved; None if the result is not settled."""
        if not self.settled or not self.fixed_plan_count:
            return None
        return 1 - (self.probes_count - self.discovery_count) / self.fixed_plan_count


def between(ttls: tuple[int, ...], hop: Hop, before: Hop | None) -> Segment:
    """Computes a segment from the lines at its ends. An answer takes the same links back."""
    line = hop.line
    assert line is not None
    unsupported = [
        fitted
        for fitted in (line, before.line if before else None)
        if fitted and not fitted.supported
    ]
    own = _own(hop, before)
    if unsupported:
        return Segment(ttls, hop.address, None, None, line, own, unsupported[0].reason, hop.lost_s)
    G, latency = line.G_us_per_KiB, line.estimate_at(-hop.reply_bytes)
    if before is not None and before.line is not None:
        G = G - before.line.G_us_per_KiB
        latency = latency - before.line.estimate_at(-before.reply_bytes)
    reason = ""
    if G.relative > RELATIVE_MAX or G.value <= 0:
        reason = G.wide("µs/KiB")
    known = None if reason else G
    return Segment(ttls, hop.address, known, latency * 0.5, line, own, reason, hop.lost_s)


def _own(hop: Hop, before: Hop | None) -> Line | None:
    """Returns the time one way of the part between two hops."""
    line = hop.line
    assert line is not None
    # At this size half a round trip does not depend on the slope, so it is most precise.
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
    """Returns the time to a hop, µs: a round trip less the way back of the answer."""
    line = hop.line
    assert line is not None
    away_bytes = size_bytes - (line.middle_bytes + hop.reply_bytes) / 2
    return line.middle_us * 0.5 + line.slope_us_per_byte * away_bytes


def losses(hops: list[Hop]) -> list[str]:
    """Returns notes on hops that no longer answer, grouped by the router that reported them."""
    by: dict[str, list[Hop]] = {}
    for hop in hops:
        if hop.lost_s is not None:
            by.setdefault(hop.refused.address if hop.refused else "", []).append(hop)
    return [_loss(lost, hops) for lost in by.values()]


def _loss(hops: list[Hop], every: list[Hop]) -> str:
    reply = hops[0].refused
    router = next((other for other in every if reply and reply.address in other.addresses), None)
    # A router without a route reports this for itself, too.
    ttls = [hop.ttl for hop in hops if hop is not router] or [hops[-1].ttl]
    names = ("hop " if len(ttls) == 1 else "hops ") + ", ".join(map(str, ttls))
    since = f"since {min(hop.heard_s for hop in hops):.1f} s"
    text = f"{names}: no answer {since}"
    if reply:
        reporter = f"hop {router.ttl}, {reply.address}," if router else reply.address
        text = f"{reporter} reports unreachable (ICMP code {reply.code}) {since}"
        text += f": no answer from {names}"
    return text + ("; the figures are from earlier" if any(hop.usable for hop in hops) else "")

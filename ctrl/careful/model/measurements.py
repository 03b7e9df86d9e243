"""Pipelines from the files of `measure pathchar`, `blackbox` and `logp`, alone or combined.

Only pathchar orders the stages, and gives the G of each. A hop's latency contains its propagation,
so it is only the most that its g can be. A black box adds g and G of the bottleneck, the sums of
all stages, and a bound: no stage is slower than the bottleneck. LogP adds the hosts' overheads and
the same bound for small messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from careful.errors import InputError
from careful.jsonout import Json
from careful.model.blackbox import BlackBox, Regime
from careful.model.stages import KIB, MESSAGE_BYTES_MAX, Pipeline, Stage, is_cost, shortened

#: Headers of a careful frame over IPv4, bytes: pathchar counts them, a plan does not.
HEADERS_BYTES = 76
#: Largest difference of a hop's G and the bottleneck's, as a share, if both are the same stage.
ALIKE = 0.15
#: Least share of all G that is attributed to the hosts.
HOSTS_MIN = 0.02
_INTO_HOSTS = "the black box's other G is split between the hosts"


@dataclass(frozen=True)
class Part:
    """A hop, or a stage inside a host.

    G_us_per_KiB: None if it was withheld, for `reason`; most_us: the most that g can be, with the
    headers; is_g: most_us is g itself, because nothing propagates inside a host.
    """

    name: str
    G_us_per_KiB: float | None
    most_us: float
    is_g: bool = False
    resource: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Hops:
    """The parts of a path in order (pathchar); reached: the last part is the host's."""

    parts: tuple[Part, ...]
    reached: bool = True

    @classmethod
    def from_dict(cls, data: Json, origin: str) -> Hops:
        """Reads the JSON of `measure pathchar`; raises ValueError."""
        entries = data.get("stages") or data.get("hops")
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise InputError(f"{origin}: no hops")
        try:
            parts = tuple(_part(one) for one in entries)
        except InputError as error:
            raise InputError(f"{origin}: {error}") from None
        if not parts:
            raise InputError(f"{origin}: pathchar measured no hop")
        return cls(parts, data.get("reached") is not False)


@dataclass(frozen=True)
class Ends:
    """The hosts' overheads and the gap between small messages, µs (logp)."""

    send_us: float
    receive_us: float
    gap_us: float

    @classmethod
    def from_dict(cls, data: Json, origin: str) -> Ends:
        """Reads the JSON of `measure logp`; raises ValueError for a figure that is withheld."""
        values = [_cost(data, f"{name}_us") for name in ("os", "or", "g")]
        known = [one for one in values if one is not None]
        if len(known) < len(values):
            raise InputError(f"{origin}: logp withholds os, or or g: measure again")
        return cls(*known)


def _cost(entry: Json, key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, (int, float)) and value < 0:
        value = 0.0  # of an estimate near 0; no cost is negative
    if not is_cost(value):
        raise InputError(f"{key} is {shortened(value)}, must be a number")
    return float(value)


def _part(entry: Json) -> Part:
    names, ttls = entry.get("stages"), entry.get("hops")
    if isinstance(ttls, list):
        names = [f"hop {shortened(ttl)}" for ttl in ttls]
    if not isinstance(names, list) or not names:
        raise InputError("a hop without a number")
    name = ", ".join(str(one) for one in names)
    if entry.get("address"):
        name += f" ({entry['address']})"
    G, g, latency = (_cost(entry, key) for key in ("G_us_per_KiB", "g_us", "latency_us"))
    middle = _cost(entry, "middle_us")
    reason = " ".join(str(entry.get("reason") or "it was withheld").split())[:200]
    resource = str(entry.get("resource") or "")
    if latency is not None:
        return Part(name, G, latency + (G or 0.0) * HEADERS_BYTES / KIB, False, resource, reason)
    if g is None and G is None and middle is not None:
        g, G, reason = middle, None, f"its time at one size counts as g: {reason}"
    return Part(name, G, g or 0.0, g is not None, resource, reason)


Measurement = Pipeline | BlackBox | Hops | Ends


def combined(found: Sequence[Measurement]) -> Pipeline | BlackBox:
    """Makes one pipeline of all measurements of a path; what it rests on is in `rests_on`.

    Raises ValueError for measurements that make no pipeline together.
    """
    if len(found) == 1 and isinstance(found[0], (Pipeline, BlackBox)):
        return found[0]
    if any(isinstance(one, Pipeline) for one in found):
        raise InputError("a file with all stages is not combined with others")
    kinds = [type(one) for one in found]
    if len(set(kinds)) < len(kinds):
        raise InputError("two files of one kind: give one of pathchar, blackbox and logp each")
    hops = next((one for one in found if isinstance(one, Hops)), None)
    box = next((one for one in found if isinstance(one, BlackBox)), None)
    ends = next((one for one in found if isinstance(one, Ends)), None)
    if hops is None:
        raise InputError(
            "logp knows the hosts at one message size, not the stages between them: add the file "
            "of `carefulctl measure pathchar HOST --json`"
        )
    return _Path(hops, box, ends).pipeline()


class _Path:
    """Combines the measurements of one path."""

    def __init__(self, hops: Hops, box: BlackBox | None, ends: Ends | None) -> None:
        self._parts = list(hops.parts)
        self._box, self._ends = box, ends
        self._has_hosts = any(one.is_g for one in hops.parts)
        self._says = ["the order and each G are pathchar's"]
        if not hops.reached:
            self._says.append(f"pathchar did not get beyond {hops.parts[-1].name}")

    def pipeline(self) -> Pipeline:
        self._fill()
        bottlenecks = self._bottlenecks()
        stages = [self._stage(one, bottlenecks.get(one.name)) for one in self._parts]
        if self._box:
            known_us = sum(one.g_us + one.delay_us for one in stages)
            left_us = max(0.0, self._box.sum_g_us - known_us)
            stages[-1] = replace(stages[-1], delay_us=stages[-1].delay_us + left_us)
        if self._ends:
            self._says.append(f"no hop's g is above logp's gap of {self._ends.gap_us:.4g} µs")
        if not (self._box or self._ends):
            self._says.append(
                "each hop's g is its latency, an upper bound: if a part of that is propagation, "
                "more fragments are better; a blackbox or logp file shows this"
            )
        made = Pipeline(tuple(stages), rests_on="; ".join(self._says))
        regimes = self._box.regimes if self._box else ()
        if not regimes or math.isinf(regimes[-1].high_bytes):
            return made
        low, high = max(1, int(regimes[0].low_bytes)), int(regimes[-1].high_bytes)
        return replace(made, size_min_bytes=low, size_max_bytes=high)

    def _fill(self) -> None:
        """Gives every part its G, and the hosts the rest of a black box's sum."""
        known = sum(one.G_us_per_KiB or 0.0 for one in self._parts)
        whole = self._box.sum_G_us_per_KiB if self._box else known
        left = max(0.0, whole - known)
        unknown = [one for one in self._parts if one.G_us_per_KiB is None]
        share = left / len(unknown) if unknown else 0.0
        for one in unknown:
            at = f"its share of the black box's sum, {share:.4g} µs/KiB" if self._box else "0"
            self._says.append(f"{one.name} has no G ({one.reason}): it counts as {at}")
        self._parts = [
            replace(one, G_us_per_KiB=share) if one.G_us_per_KiB is None else one
            for one in self._parts
        ]
        left = 0.0 if unknown else left
        if self._has_hosts or not (self._ends or left > HOSTS_MIN * whole):
            return
        send_us, receive_us = (self._ends.send_us, self._ends.receive_us) if self._ends else (0, 0)
        self._parts.insert(0, Part("sender", left / 2, send_us, True))
        self._parts.append(Part("receiver", left / 2, receive_us, True))
        if self._ends:
            self._says.append("the hosts' g are logp's os and or")
        if left:
            self._says.append(f"{_INTO_HOSTS}: {left / 2:.4g} µs/KiB each")

    def _bottlenecks(self) -> dict[str, tuple[float, float]]:
        """Returns g and G of the parts that a black box sees as bottleneck, by name."""
        found: dict[str, tuple[float, float]] = {}
        for regime in self._box.regimes if self._box else ():
            like = self._like(regime, found)
            part = like[0] if like else self._host(regime)
            if like:
                others = " or ".join(one.name for one in like)
                self._says.append(f"the bottleneck is {others}, with the black box's g and G")
            else:
                self._says.append(f"no hop is like the bottleneck of {regime}: it is {part.name}")
            found[part.name] = (regime.g_b_us, regime.G_b_us_per_KiB)
        return found

    def _host(self, regime: Regime) -> Part:
        """Returns what counts as a bottleneck that is no hop: the slowest part, or the sender."""
        if self._has_hosts:
            middle = (regime.low_bytes + min(regime.high_bytes, MESSAGE_BYTES_MAX)) / 2
            return max(self._parts, key=lambda one: one.most_us + _G(one) * middle / KIB)
        ends = {one.name: one for one in self._parts if one.is_g}
        left = max(0.0, sum(map(_G, ends.values())) - regime.G_b_us_per_KiB)
        sender = ends.get("sender", Part("sender", 0.0, 0.0, True))
        receiver = ends.get("receiver", Part("receiver", 0.0, 0.0, True))
        hops = [one for one in self._parts if not one.is_g]
        self._parts = [sender, *hops, replace(receiver, G_us_per_KiB=left)]
        return sender

    def _like(self, regime: Regime, taken: dict[str, tuple[float, float]]) -> list[Part]:
        """Returns parts with the regime's G whose latency allows its g, the slowest first."""
        like = [
            one
            for one in self._parts
            if one.name not in taken
            and abs(_G(one) - regime.G_b_us_per_KiB) <= ALIKE * max(regime.G_b_us_per_KiB, 1e-9)
            and one.most_us >= (1 - ALIKE) * regime.g_b_low_us
        ]
        return sorted(like, key=lambda one: -one.most_us)

    def _stage(self, part: Part, known: tuple[float, float] | None) -> Stage:
        """Splits a hop's latency: as much as the bounds allow is g, the rest is propagation."""
        g_us, G = known or (part.most_us, _G(part))
        if known is None and not part.is_g:
            bounds = [g_us]
            if self._ends:
                bounds.append(self._ends.gap_us)
            for one in self._box.regimes if self._box else ():
                for size in {one.low_bytes, one.high_bytes} - {math.inf}:
                    bounds.append(one.g_b_us + (one.G_b_us_per_KiB - G) * size / KIB)
            g_us = max(0.0, min(bounds))
        away_us = max(0.0, part.most_us - g_us)
        return Stage(part.name, g_us, G, resource=part.resource, delay_us=away_us)


def _G(part: Part) -> float:
    return part.G_us_per_KiB or 0.0

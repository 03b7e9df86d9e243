"""Pipelines from the files of `measure pathchar`, `blackbox` and `logp`, alone or combined.

Only pathchar orders the stages, and gives the G of each. A hop's latency contains its propagation,
so it is an upper bound of the hop's g. A black box adds g and G of the bottleneck, the sums of all
stages, and a bound: no stage is slower than the bottleneck. LogP adds the hosts' overheads and the
same bound for small messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from careful.errors import InputError, WithheldError
from careful.jsonout import Json
from careful.model.blackbox import BlackBox, Regime
from careful.model.stages import KIB, MESSAGE_BYTES_MAX, Pipeline, Stage, is_cost, named, shortened

#: Headers of a careful frame over IPv4, bytes: pathchar counts them, a plan does not.
HEADERS_BYTES = 76
#: Largest difference of a hop's G and the bottleneck's, as a share, if both are the same stage.
ALIKE = 0.15
#: Least share of all G that is attributed to the hosts.
HOSTS_MIN = 0.02
_UNKNOWN = "it was withheld"
_INTO_HOSTS = "the black box's other G is split between the hosts"


@dataclass(frozen=True)
class Part:
    """A hop, or a stage inside a host.

    G_us_per_KiB: None if withheld, for `reason`; most_us: upper bound of g, which includes the
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
    """The parts of a path in order (pathchar); reached: the last part belongs to the host."""

    parts: tuple[Part, ...]
    reached: bool = True

    @classmethod
    def from_dict(cls, data: Json, origin: str) -> Hops:
        """Reads the JSON of `measure pathchar`; raises ValueError."""
        entries = data.get("stages") or data.get("hops")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise InputError(f"{origin}: 'stages' or 'hops' must be a list of objects")
        with named(origin):
            parts = tuple(_part(entry) for entry in entries)
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
        """Reads the JSON of `measure logp`; raises WithheldError for a figure that is withheld."""
        values = {name: _cost(data, f"{name}_us") for name in ("os", "or", "g")}
        known = [value for value in values.values() if value is not None]
        if len(known) < len(values):
            missing = [name for name, value in values.items() if value is None]
            reasons = [shown for name in missing if (shown := _reason(data, f"{name}_reason"))]
            raise WithheldError(origin, ", ".join(missing), (*reasons, _UNKNOWN)[0])
        return cls(*known)


def _reason(entry: Json, key: str) -> str:
    """Returns the reason for a missing figure in one line, "" if there is none."""
    return " ".join(str(entry.get(key) or "").split())[:200]


def _cost(entry: Json, key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, (int, float)) and value < 0:
        value = 0.0  # an estimate near 0; no cost is negative
    if not is_cost(value):
        raise InputError(f"{key} is {shortened(value)}, must be a number")
    return float(value)


def _part(entry: Json) -> Part:
    names, ttls = entry.get("stages"), entry.get("hops")
    if isinstance(ttls, list):
        names = [f"hop {shortened(ttl)}" for ttl in ttls]
    if not isinstance(names, list) or not names:
        raise InputError("a hop has no number")
    name = ", ".join(str(one) for one in names)
    if entry.get("address"):
        name += f" ({entry['address']})"
    G, g, latency = (_cost(entry, key) for key in ("G_us_per_KiB", "g_us", "latency_us"))
    middle = _cost(entry, "middle_us")
    reason = _reason(entry, "reason") or _UNKNOWN
    resource = str(entry.get("resource") or "")
    if latency is not None:
        return Part(name, G, latency + (G or 0.0) * HEADERS_BYTES / KIB, False, resource, reason)
    if g is None and G is None and middle is not None:
        g = middle
    return Part(name, G, g or 0.0, g is not None, resource, reason)


Measurement = Pipeline | BlackBox | Hops | Ends


def combined(measurements: Sequence[Measurement]) -> Pipeline | BlackBox:
    """Combines all measurements of a path into one pipeline; `rests_on` lists its assumptions.

    Raises WithheldError if no stage has a G, ValueError if the measurements do not give a pipeline.
    """
    if len(measurements) == 1 and isinstance(measurements[0], (Pipeline, BlackBox)):
        return measurements[0]
    if any(isinstance(m, Pipeline) for m in measurements):
        raise InputError("a file with all stages cannot be combined with others")
    if len({type(m) for m in measurements}) < len(measurements):
        raise InputError("two files of one kind: give at most one each of pathchar, blackbox, logp")
    hops = next((m for m in measurements if isinstance(m, Hops)), None)
    box = next((m for m in measurements if isinstance(m, BlackBox)), None)
    ends = next((m for m in measurements if isinstance(m, Ends)), None)
    if hops is None:
        raise InputError(
            "logp measures the hosts, not the stages between them: add the file of "
            "`carefulctl measure pathchar HOST --json`"
        )
    return _Path(hops, box, ends).pipeline()


class _Path:
    """Combines the measurements of one path."""

    def __init__(self, hops: Hops, box: BlackBox | None, ends: Ends | None) -> None:
        self._parts = list(hops.parts)
        self._box, self._ends = box, ends
        self._has_hosts = any(part.is_g for part in hops.parts)
        self._notes = ["the order and each G are pathchar's"]
        if not hops.reached:
            self._notes.append(f"pathchar did not get beyond {hops.parts[-1].name}")

    def pipeline(self) -> Pipeline:
        if not self._box and all(part.G_us_per_KiB is None for part in self._parts):
            text = f"{self._parts[0].name}: {self._parts[0].reason}"
            raise WithheldError("", "the G of every stage", text)
        self._fill()
        bottlenecks = self._bottlenecks()
        stages = [self._stage(part, bottlenecks.get(part.name)) for part in self._parts]
        if self._box:
            known_us = sum(stage.g_us + stage.delay_us for stage in stages)
            left_us = max(0.0, self._box.sum_g_us - known_us)
            stages[-1] = replace(stages[-1], delay_us=stages[-1].delay_us + left_us)
        if self._ends:
            self._notes.append(f"no hop's g is above logp's gap of {self._ends.gap_us:.4g} µs")
        if not (self._box or self._ends):
            self._notes.append(
                "each hop's g is its latency, an upper bound: if part of the latency is "
                "propagation, more fragments are better; add a blackbox or logp file"
            )
        pipeline = Pipeline(tuple(stages), rests_on="; ".join(self._notes))
        regimes = self._box.regimes if self._box else ()
        if not regimes or math.isinf(regimes[-1].high_bytes):
            return pipeline
        low, high = max(1, int(regimes[0].low_bytes)), int(regimes[-1].high_bytes)
        return replace(pipeline, size_min_bytes=low, size_max_bytes=high)

    def _fill(self) -> None:
        """Gives every part its G, and the hosts the remaining G of the black box."""
        known = sum(part.G_us_per_KiB or 0.0 for part in self._parts)
        whole = self._box.sum_G_us_per_KiB if self._box else known
        left = max(0.0, whole - known)
        unknown = [part for part in self._parts if part.G_us_per_KiB is None]
        share = left / len(unknown) if unknown else 0.0
        for part in unknown:
            at = f"its share of the black box's sum, {share:.4g} µs/KiB" if self._box else "0"
            g = "its time at one size counts as g: " if part.is_g else ""
            self._notes.append(f"{part.name} has no G ({g}{part.reason}): it counts as {at}")
        self._parts = [
            replace(part, G_us_per_KiB=share) if part.G_us_per_KiB is None else part
            for part in self._parts
        ]
        left = 0.0 if unknown else left
        if self._has_hosts or not (self._ends or left > HOSTS_MIN * whole):
            return
        send_us, receive_us = (self._ends.send_us, self._ends.receive_us) if self._ends else (0, 0)
        self._parts.insert(0, Part("sender", left / 2, send_us, True))
        self._parts.append(Part("receiver", left / 2, receive_us, True))
        if self._ends:
            self._notes.append("the hosts' g are logp's os and or")
        if left:
            self._notes.append(f"{_INTO_HOSTS}: {left / 2:.4g} µs/KiB each")

    def _bottlenecks(self) -> dict[str, tuple[float, float]]:
        """Returns g and G of the parts that a black box sees as bottleneck, by name."""
        costs: dict[str, tuple[float, float]] = {}
        for regime in self._box.regimes if self._box else ():
            alike = self._like(regime, costs)
            part = alike[0] if alike else self._host(regime)
            if alike:
                names = " or ".join(part.name for part in alike)
                self._notes.append(f"the bottleneck is {names}, with the black box's g and G")
            else:
                self._notes.append(f"no hop matches the bottleneck of {regime}: it is {part.name}")
            costs[part.name] = (regime.g_b_us, regime.G_b_us_per_KiB)
        return costs

    def _host(self, regime: Regime) -> Part:
        """Returns the part that counts as bottleneck if no hop does: the slowest, or the sender."""
        if self._has_hosts:
            middle = (regime.low_bytes + min(regime.high_bytes, MESSAGE_BYTES_MAX)) / 2
            return max(self._parts, key=lambda part: part.most_us + _G(part) * middle / KIB)
        ends = {part.name: part for part in self._parts if part.is_g}
        left = max(0.0, sum(map(_G, ends.values())) - regime.G_b_us_per_KiB)
        sender = ends.get("sender", Part("sender", 0.0, 0.0, True))
        receiver = ends.get("receiver", Part("receiver", 0.0, 0.0, True))
        hops = [part for part in self._parts if not part.is_g]
        self._parts = [sender, *hops, replace(receiver, G_us_per_KiB=left)]
        return sender

    def _like(self, regime: Regime, taken: dict[str, tuple[float, float]]) -> list[Part]:
        """Returns the parts whose G and latency match the regime's bottleneck, slowest first."""
        alike = [
            part
            for part in self._parts
            if part.name not in taken
            and abs(_G(part) - regime.G_b_us_per_KiB) <= ALIKE * max(regime.G_b_us_per_KiB, 1e-9)
            and part.most_us >= (1 - ALIKE) * regime.g_b_low_us
        ]
        return sorted(alike, key=lambda part: -part.most_us)

    def _stage(self, part: Part, known: tuple[float, float] | None) -> Stage:
        """Splits a hop's latency: as much as the bounds allow is g, the rest is propagation."""
        g_us, G = known or (part.most_us, _G(part))
        if known is None and not part.is_g:
            bounds = [g_us]
            if self._ends:
                bounds.append(self._ends.gap_us)
            for regime in self._box.regimes if self._box else ():
                for size in {regime.low_bytes, regime.high_bytes} - {math.inf}:
                    bounds.append(regime.g_b_us + (regime.G_b_us_per_KiB - G) * size / KIB)
            g_us = max(0.0, min(bounds))
        away_us = max(0.0, part.most_us - g_us)
        return Stage(part.name, g_us, G, resource=part.resource, delay_us=away_us)


def _G(part: Part) -> float:
    return part.G_us_per_KiB or 0.0

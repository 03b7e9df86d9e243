"""Service times of a host's stages from trace records (P1 section 5.3.1).

Owns the derivation of (g, G) of each stage: the assignment of records, the time of a frame, and a
robust line through the unhindered times of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from careful._abi import lib
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import (
    RELATIVE_MAX,
    Array,
    Line,
    fit_line,
    median,
    undelayed_most_us,
)
from careful.measure.statistics.piecewise import POINTS_MIN, fit_piecewise
from careful.units import counted

Records = npt.NDArray[np.void]

HOST_TX: int = lib.CAREFUL_STAGE_HOST_TX
NET_TX: int = lib.CAREFUL_STAGE_NET_TX
NET_RX: int = lib.CAREFUL_STAGE_NET_RX
HOST_RX: int = lib.CAREFUL_STAGE_HOST_RX
STORE: int = lib.CAREFUL_STAGE_STORE
NAMES = {HOST_TX: "hostTx", NET_TX: "netTx", NET_RX: "netRx", HOST_RX: "hostRx", STORE: "store"}

#: A line goes through this quantile of each size's times. Caches and schedulers delay many frames;
#: how many depends on the machine, not on the stage. The minimum would be an outlier.
UNHINDERED = 0.1
#: Samples that a size needs for this quantile, and sizes that a line needs.
SAMPLES_MIN = 5
SIZES_MIN = 4
#: Most frames that may have been in the RX ring when the tracing began.
_SHIFT_MAX = 4096


@dataclass(frozen=True)
class Samples:
    """Times of one stage of one host, per frame.

    `size_bytes`: payload of a frame; `time_us`: the frame's share of its transfer; `frames_count`:
    frames of the transfer; each of shape (n,), n >= 0. `threads`: ids of the stage's threads;
    `waited_count`: transfers that waited for a device.
    """

    size_bytes: Array
    time_us: Array
    frames_count: npt.NDArray[np.int64]
    threads: frozenset[int]
    waited_count: int = 0

    def __len__(self) -> int:
        return len(self.size_bytes)


@dataclass(frozen=True)
class Fit:
    """One stage of one host.

    `name`, `owner`: the stage and its host; `line`: time of a frame over its payload, None if there
    is nothing to fit; `g_us`, `G_us_per_KiB`: None with a `reason` if the data do not support a
    slope; `frames_per_transfer`: of the fitted transfers; `transitions_bytes`: sizes at which one
    line follows another; `inside`: the stage inside which it runs (whose figures exclude it);
    `holds`: the owner whose netRx its figures include, "" for none.
    """

    name: str
    owner: str
    samples: Samples
    line: Line | None
    g_us: Estimate | None
    G_us_per_KiB: Estimate | None
    frames_per_transfer: int
    reason: str = ""
    transitions_bytes: tuple[float, ...] = ()
    resource: str = ""
    inside: str = ""
    holds: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def supported(self) -> bool:
        return self.g_us is not None and self.G_us_per_KiB is not None


def service_us(records: Records) -> Array:
    """Returns the service time of each record, µs, without the time to read the clock."""
    spans = records["end_ns"].astype(np.int64) - records["begin_ns"].astype(np.int64)
    before = records["before_ns"].astype(np.int64)
    readings = 1 + (before > 0)
    clock = float(np.median(records["clock_ns"])) if len(records) else 0.0
    return np.maximum(spans + before - clock * readings, 0.0) / 1e3


def records_of(records: Records, stage: int, owner: int) -> Records:
    """Returns one stage's records of one host, in order."""
    selected: Records = records[(records["stage"] == stage) & (records["owner"] == owner)]
    return selected


def arrivals(records: Records, owner: int) -> tuple[Records, Records]:
    """Returns a host's netRx and hostRx records of the same frames, each of shape (n,).

    The kernel's records of netRx do not name their frames, but are in the order in which the engine
    takes frames from the ring. Frames that were in the ring when tracing began have no netRx.
    """
    received, copied = (records_of(records, stage, owner) for stage in (NET_RX, HOST_RX))
    start = copied["begin_ns"].astype(np.int64) - copied["before_ns"].astype(np.int64)
    received = received[np.argsort(received["end_ns"], kind="stable")]
    order = np.argsort(start, kind="stable")
    copied, start = copied[order], start[order]
    arrived = received["end_ns"].astype(np.int64)
    for shift in range(min(len(copied), _SHIFT_MAX)):
        count = min(len(received), len(copied) - shift)
        # A frame's netRx ends no later than its hostRx starts, apart from the time to read a clock.
        if (arrived[:count] <= start[shift : shift + count] + 1000).all():
            return received[:count], copied[shift : shift + count]
    return received[:0], copied[:0]


def samples(records: Records, stage: int, owner: int, least_bytes: int = 0) -> Samples:
    """Returns a stage's time for each frame of at least `least_bytes` of payload."""
    if stage == NET_RX:
        selected, copied = arrivals(records, owner)
        size = copied["bytes"].astype(np.float64)
        keep = copied["flags"] & lib.CAREFUL_TRACE_CONTROL == 0
    else:
        selected = records_of(records, stage, owner)
        size = selected["bytes"] / np.maximum(selected["frames"], 1).astype(np.float64)
        # A kick that continues another also sends frames that its record does not count.
        excluded = lib.CAREFUL_TRACE_CONTROL | lib.CAREFUL_TRACE_AGAIN
        keep = (selected["flags"] & excluded == 0) & (selected["frames"] > 0)
    keep &= size >= least_bytes
    selected, size = selected[keep], size[keep]
    frames = np.maximum(selected["frames"].astype(np.int64), 1)
    waited = int(np.count_nonzero(selected["flags"] & lib.CAREFUL_TRACE_WAITED))
    threads = frozenset(int(thread) for thread in np.unique(selected["thread"]))
    return Samples(size, service_us(selected) / frames, frames, threads, waited)


def joined(parts: Sequence[Samples]) -> Samples:
    """Joins samples; netRx is matched within each part before."""
    return Samples(
        np.concatenate([each.size_bytes for each in parts] or [np.empty(0)]),
        np.concatenate([each.time_us for each in parts] or [np.empty(0)]),
        np.concatenate([each.frames_count for each in parts] or [np.empty(0, np.int64)]),
        frozenset[int]().union(*(each.threads for each in parts)),
        sum(each.waited_count for each in parts),
    )


def _unhindered_us(times_us: Array) -> float:
    return float(np.quantile(times_us, UNHINDERED))


def _undelayed_us(times_us: Array) -> float:
    return median(times_us[times_us <= undelayed_most_us(times_us)])


def _by_size(
    samples: Samples, chosen: Callable[[Array], float] = _unhindered_us
) -> tuple[Array, Array, int]:
    """Returns sizes with enough samples, the chosen time of each, and the number of samples."""
    sizes, inverse, counts = np.unique(samples.size_bytes, return_inverse=True, return_counts=True)
    enough = np.flatnonzero(counts >= SAMPLES_MIN)
    times = [chosen(samples.time_us[inverse == index]) for index in enough]
    return sizes[enough], np.array(times), int(counts[enough].sum())


def _alike(samples: Samples) -> Samples:
    """Selects the transfers with one frame count: the count with most sizes, then most samples."""
    best, most = None, (-1, -1)
    for count in np.unique(samples.frames_count):
        keep = samples.frames_count == count
        subset = replace(
            samples,
            size_bytes=samples.size_bytes[keep],
            time_us=samples.time_us[keep],
            frames_count=samples.frames_count[keep],
        )
        sizes, _, number = _by_size(subset)
        score = (min(len(sizes), SIZES_MIN), number)
        if score > most:
            best, most = subset, score
    return best or samples


def fit(stage: int, owner: str, samples: Samples) -> Fit:
    """Fits (g, G) of a stage."""
    name, alike = NAMES[stage], _alike(samples)
    frames = int(alike.frames_count[0]) if len(alike) else 0
    blank = Fit(name, owner, samples, None, None, None, frames)
    sizes, times, number = _by_size(alike)
    if not len(samples):
        return replace(blank, reason="no traffic")
    if len(sizes) < SIZES_MIN:
        few = counted(len(sizes), "size")
        reason = f"only {few} with {SAMPLES_MIN} samples or more; a slope needs {SIZES_MIN}"
        return replace(blank, reason=reason)
    line = replace(fit_line(sizes, times), samples_count=number)
    pieces = fit_piecewise(sizes, times).transitions_bytes if len(sizes) >= 2 * POINTS_MIN else ()
    return replace(_with_line(blank, line), transitions_bytes=pieces)


def _with_line(blank: Fit, line: Line) -> Fit:
    g, G = (line.intercept_us, line.G_us_per_KiB) if line.supported else (None, None)
    return replace(blank, line=line, g_us=g, G_us_per_KiB=G, reason=line.reason)


def whole(first: Fit, paces: Sequence[tuple[int, float]]) -> Fit:
    """Fits the whole time of a stage's thread for a frame, µs, with the work between its stages.

    That work (polling, timers, reading clocks) is part of each frame's time, but of no stage. Like
    a black box, it takes the median of the trains that other work did not delay. paces: size,
    bytes, and time from frame to frame, µs, of untraced trains: probes are slow.
    """
    sizes = np.array([size for size, _ in paces], dtype=np.float64)
    times = np.array([pace_us for _, pace_us in paces])
    threads = first.samples.threads
    samples = Samples(sizes, times, np.ones(len(paces), dtype=np.int64), threads)
    blank = Fit("all of it", first.owner, samples, None, None, None, 1, resource=first.resource)
    distinct, middle, number = _by_size(samples, _undelayed_us)
    if len(distinct) < SIZES_MIN:
        reason = f"{SAMPLES_MIN} trains of {SIZES_MIN} sizes are needed"
        return replace(blank, reason=reason)
    return _with_line(blank, replace(fit_line(distinct, middle), samples_count=number))


def shared(fits: list[Fit]) -> list[Fit]:
    """Assigns resources: the stages of a thread never overlap, so they are one resource.

    On veth the sender's kick also runs the receiver's netRx. Then netRx is subtracted from netTx;
    if the difference has no slope, both become one stage.
    """
    named: dict[int, str] = {}
    for fit in fits:
        if fit.name != "netRx":
            for thread in fit.samples.threads:
                named.setdefault(thread, f"{fit.owner}'s thread")
    result = []
    for fit in fits:
        names = {named.get(thread, "softirq") for thread in fit.samples.threads}
        if fit.samples.waited_count * 2 > len(fit.samples):
            resource = f"{fit.owner}'s storage"
        else:
            resource = names.pop() if len(names) == 1 else "several threads"
        result.append(replace(fit, resource=resource if len(fit.samples) else ""))
    kicks = [fit for fit in result if fit.name == "netTx" and len(fit.samples)]
    for number, fit in enumerate(result):
        if fit.name != "netRx" or not len(fit.samples):
            continue
        kick = next((k for k in kicks if fit.samples.threads <= k.samples.threads), None)
        if kick is None:
            continue
        result[number] = replace(fit, inside=f"netTx of {kick.owner}")
        result[result.index(kick)] = _without(kick, fit)
    joined = {fit.holds for fit in result if fit.holds}
    return [fit for fit in result if fit.name != "netRx" or fit.owner not in joined]


def _without(kick: Fit, inner: Fit) -> Fit:
    """Subtracts from a kick the netRx that ran inside it, or joins the two if that fails.

    The difference of two supported slopes need not be supported itself.
    """
    if not (kick.g_us and kick.G_us_per_KiB):
        return replace(kick, notes=[*kick.notes, f"its kick also runs netRx of {inner.owner}"])
    if not (inner.g_us and inner.G_us_per_KiB):
        return _joined(kick, inner, f"no line of netRx: {inner.reason}")
    g, G = kick.g_us - inner.g_us, kick.G_us_per_KiB - inner.G_us_per_KiB
    if G.value <= 0 or G.relative > RELATIVE_MAX:
        return _joined(kick, inner, f"the difference is {G.low:.3g} to {G.high:.3g} µs/KiB")
    if g.high < 0:
        return _joined(kick, inner, f"the difference is {g.low:.3g} to {g.high:.3g} µs")
    note = f"its kick runs netRx of {inner.owner}, whose time is subtracted"
    return replace(kick, g_us=g, G_us_per_KiB=G, notes=[*kick.notes, note])


def _joined(kick: Fit, inner: Fit, reason: str) -> Fit:
    median_us = float(np.median(inner.samples.time_us))
    note = (
        f"netRx of {inner.owner} runs in its kick (median {median_us:.3g} µs), and the two cannot "
        f"be separated: {reason}"
    )
    name = f"{kick.name}, {inner.name}"
    return replace(kick, name=name, holds=inner.owner, notes=[*kick.notes, note])


@dataclass(frozen=True)
class Bottleneck:
    """The parameters of fixed-size fragmentation (P1 section 3.1).

    resource: the slowest at `size_bytes`, where the stages of a thread are one resource; g_b_us,
    G_b, and the sum of the other resources' G; lines: those of the resource's stages.
    """

    resource: str
    size_bytes: float
    g_b_us: Estimate
    G_b_us_per_KiB: Estimate
    sum_G_others_us_per_KiB: Estimate
    lines: tuple[Line, ...] = ()
    lines_of_others: tuple[Line, ...] = ()


def bottleneck(fits: Sequence[Fit], sender: Fit | None = None) -> Bottleneck | None:
    """Returns the bottleneck of a pipeline; None unless each stage has g and G.

    sender: see `whole`; its g and G, if known, replace the sum of its resource's stages.
    """
    if not fits or not all(fit.supported and fit.line for fit in fits):
        return None
    size = min(fit.line.size_max_bytes for fit in fits if fit.line)
    sums: dict[str, tuple[Estimate, Estimate]] = {}
    for fit in fits:
        assert fit.g_us is not None
        assert fit.G_us_per_KiB is not None
        g, G = sums.get(fit.resource, (Estimate(0.0), Estimate(0.0)))
        sums[fit.resource] = (g + fit.g_us, G + fit.G_us_per_KiB)
    if sender and sender.g_us and sender.G_us_per_KiB:
        sums[sender.resource] = (sender.g_us, sender.G_us_per_KiB)
        fits = [sender, *(fit for fit in fits if fit.resource != sender.resource)]
    slowest = max(sums, key=lambda name: sums[name][0].value + sums[name][1].value * size / 1024)
    others = Estimate(0.0)
    for name, (_, G) in sums.items():
        if name != slowest:
            others += G
    lines: tuple[list[Line], list[Line]] = ([], [])
    for fit in fits:
        if fit.line:
            lines[fit.resource != slowest].append(fit.line)
    return Bottleneck(slowest, size, *sums[slowest], others, *map(tuple, lines))


def histogram(times_us: Array, bins_most: int = 40) -> list[dict[str, object]]:
    """Counts times in bins that grow by at least an eighth of an octave, µs."""
    if not len(times_us):
        return []
    low = max(float(np.min(times_us)), 1e-3)
    high = max(float(np.max(times_us)), low * 2**0.125)
    step = max(2**0.125, (high / low) ** (1 / bins_most) * (1 + 1e-9))
    edges = [low]
    while edges[-1] < high:
        edges.append(edges[-1] * step)
    counts, _ = np.histogram(np.maximum(times_us, low), bins=np.array(edges))
    return [
        {"low_us": round(a, 4), "high_us": round(b, 4), "count": int(n)}
        for a, b, n in zip(edges, edges[1:], counts, strict=False)
        if n
    ]

"""Adaptive message pipelining: the effect of pulses on a message (P3 sections 3, 4; P5).

Makes rules for `simulation.py`, and computes the cut-through speed-up by bandwidth ratio.
"""

from __future__ import annotations

from collections.abc import Sequence

from careful.errors import InputError
from careful.model.simulation import EagerPulse, FixedPulse, Message, Rule, WholeMessage, simulate
from careful.model.stages import Pipeline, Stage

PAGE_BYTES = 8192


def pulse_rules(kind: str, pulses_bytes: Sequence[int], stages: int) -> list[Rule]:
    """Returns rules for a pipeline whose first stage streams a message in; its sinks pulse.

    kind: "eager", "fixed" or "store-and-forward"; pulses_bytes: one per sink (the stages
    after the first), or one for all. Raises ValueError for another kind or number.
    """
    sinks = stages - 1
    if kind == "store-and-forward":
        return [WholeMessage()] * stages
    if kind not in ("eager", "fixed"):
        raise InputError(f"unknown pulse rule '{kind}': choose eager, fixed or store-and-forward")
    if len(pulses_bytes) not in (1, sinks):
        raise InputError(f"{len(pulses_bytes)} pulse sizes for {sinks} sinks: give one or {sinks}")
    pulses = list(pulses_bytes) if len(pulses_bytes) == sinks else list(pulses_bytes) * sinks
    rule: type[EagerPulse | FixedPulse] = EagerPulse if kind == "eager" else FixedPulse
    # The source sends large transfers as soon as possible (P5, Figure 2); only sinks pulse.
    return [WholeMessage(), *(rule(pulse) for pulse in pulses)]


def pulse_latency_us(
    pipeline: Pipeline, message_bytes: float, kind: str, pulses_bytes: Sequence[int] = (1,)
) -> float:
    """Returns a message's latency under a pulse rule, µs; transfers deliver bytes as they run."""
    rules = pulse_rules(kind, pulses_bytes, len(pipeline))
    return simulate(pipeline, [Message(message_bytes)], rules, progressive=True).latency_us[0]


def cut_through_speedup(bandwidth_ratio: float, pulse_bytes: int = 8) -> float:
    """Returns a page's store-and-forward over cut-through latency, no overheads (P3 Figure 8).

    bandwidth_ratio: I/O bus over network bandwidth, > 0. Simulated with eager pulses: a
    stage waits only for the first `pulse_bytes`.
    """
    if not bandwidth_ratio > 0:
        raise InputError(f"a bandwidth ratio of {bandwidth_ratio}: must be positive")
    network = 8.0
    pipeline = Pipeline(
        (
            Stage("hostTx", 0, network / bandwidth_ratio),
            Stage("link", 0, network),
            Stage("hostRx", 0, network / bandwidth_ratio),
        )
    )
    whole_us = pulse_latency_us(pipeline, PAGE_BYTES, "store-and-forward")
    return whole_us / pulse_latency_us(pipeline, PAGE_BYTES, "eager", [pulse_bytes])

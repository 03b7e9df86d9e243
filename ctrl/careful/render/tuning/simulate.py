"""`carefulctl simulate` as text, JSON and plots."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from careful.errors import InputError
from careful.jsonout import Json
from careful.model.planner import plan, rules
from careful.model.pulses import pulse_latency_us, pulse_rules
from careful.model.rounding import static_sizes
from careful.model.simulation import Message, Outcome, Rule, Sizes, check_transfers, simulate
from careful.model.stages import Pipeline, check_message_bytes
from careful.render.tables import table
from careful.render.tuning import plan_plots
from careful.units import shown_time, sizes

#: The most transfers that are drawn; more become a grey area.
DRAWN_MAX = 4000


@dataclass(frozen=True)
class Request:
    """The request to `simulate`."""

    origin: str
    pipeline: Pipeline
    message_bytes: int
    messages_count: int
    every_us: float
    rule: str
    strategy: str
    fragments_bytes: tuple[int, ...] | None
    pulse_bytes: tuple[int, ...]
    progressive: bool

    def rules(self) -> list[Rule]:
        """Returns one rule per stage; raises ValueError for options that contradict each other."""
        check_message_bytes(self.message_bytes)
        stages = len(self.pipeline)
        cut = self.fragments_bytes
        if self.rule == "static":
            if cut is None or len(cut) != 1 or cut[0] < 1:
                raise InputError("rule static needs --fragment-bytes with one size of 1 or more")
            check_transfers(-(-self.message_bytes // cut[0]) * stages * self.messages_count)
            cut_sizes = static_sizes(self.message_bytes, cut[0])
            return [Sizes(tuple(float(size) for size in cut_sizes))] * stages
        if self.rule == "plan":
            if cut is not None:
                return [Sizes(tuple(float(size) for size in cut))] * stages
            return list(
                rules(self.pipeline, plan(self.pipeline, self.message_bytes, self.strategy))
            )
        return pulse_rules(self.rule, self.pulse_bytes, stages)

    def run(self) -> Outcome:
        """Simulates; raises ValueError for bad input."""
        if self.messages_count < 1:
            raise InputError(f"{self.messages_count} messages: at least one is needed")
        if not 0 <= self.every_us < math.inf:
            raise InputError(
                f"{self.every_us} µs between messages: must be finite and not negative"
            )
        check_transfers(self.messages_count * len(self.pipeline))
        messages = [
            Message(self.message_bytes, number * self.every_us)
            for number in range(self.messages_count)
        ]
        return simulate(self.pipeline, messages, self.rules(), self.progressive)

    def inputs(self) -> Json:
        given = {
            key: value for key, value in vars(self).items() if key not in ("pipeline", "origin")
        }
        stages = [vars(stage) for stage in self.pipeline.stages]
        return {"pipeline": self.origin, "stages": stages, **given}


def simulation_figures(request: Request, outcome: Outcome) -> Json:
    """Returns the outcome in numbers."""
    total_us = max(outcome.complete_us) - min(outcome.ready_us)
    total_bytes = request.message_bytes * request.messages_count
    stages = []
    for j, stage in enumerate(request.pipeline.stages):
        mine = outcome.of_stage(j)
        busy_us = sum(transfer.end_us - transfer.start_us for transfer in mine)
        stages.append(
            {
                "name": stage.name,
                "transfers_count": len(mine),
                "busy_us": busy_us,
                "utilisation_percent": 100 * busy_us / total_us if total_us else 0.0,
                "transfers_bytes": [transfer.size_bytes for transfer in mine],
            }
        )
    latencies = outcome.latency_us
    sizes_bytes = {transfer.size_bytes for transfer in outcome.transfers}
    return {
        "latency_us": latencies[0],
        "latency_us_mean": sum(latencies) / len(latencies),
        "latency_us_max": max(latencies),
        "latencies_us": list(latencies),
        "total_us": total_us,
        "bandwidth_bytes_per_us": total_bytes / total_us if total_us else 0.0,
        "stages": stages,
        "extrapolated": not all(request.pipeline.measured_with(size) for size in sizes_bytes),
    }


def simulation_text(request: Request, found: Json) -> str:
    """Returns the result of simulation_figures() as a table."""
    columns = ("stage", "transfers", "busy (µs)", "utilisation (%)", "transfers (bytes)")
    rows = [
        (
            stage["name"],
            stage["transfers_count"],
            stage["busy_us"],
            stage["utilisation_percent"],
            sizes(stage["transfers_bytes"], 8),
        )
        for stage in found["stages"]
    ]
    line = f"latency {shown_time(found['latency_us'], 4)}"
    if request.messages_count > 1:
        line += (
            f" first, {shown_time(found['latency_us_mean'], 4)} mean, "
            f"{shown_time(found['latency_us_max'], 4)} greatest of "
            f"{request.messages_count} messages; "
            f"{found['bandwidth_bytes_per_us']:.1f} MB/s (bytes/µs)"
        )
    if found["extrapolated"]:
        low, high = request.pipeline.size_min_bytes, request.pipeline.size_max_bytes
        line += f"\nextrapolated: the measurement had transfers of {low} to {high} bytes"
    return table(request.pipeline.name, columns, rows) + "\n" + line


def draw(request: Request, outcome: Outcome, path: Path, figure: str) -> None:
    """Draws one of the figures of `carefulctl simulate --figure`."""
    if figure == "pulses":
        thresholds = [1 << i for i in range(7, request.message_bytes.bit_length())]
        if not thresholds:
            raise InputError("the pulse figure needs a message of 128 bytes or more")
        series = {
            kind: [
                pulse_latency_us(request.pipeline, request.message_bytes, kind, [threshold])
                for threshold in thresholds
            ]
            for kind in ("fixed", "eager")
        }
        title = f"{request.pipeline.name}: {request.message_bytes} B in pulses"
        plan_plots.pulses(thresholds, series, title, path)
        return
    if len(outcome.transfers) > DRAWN_MAX:
        raise InputError(
            f"{len(outcome.transfers)} are too many transfers to draw: use fewer messages"
        )
    size = f"{request.messages_count} x {request.message_bytes} B"
    title = f"{request.pipeline.name}: {size}, {request.rule}"
    plan_plots.space_time(request.pipeline, outcome, title, path)

"""`carefulctl trace`: the datapath's stages, live."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import group, option
from careful.cli.common import instance_option, json_option, plot_option, say_folded, show
from careful.cli.params import SECONDS, duration
from careful.control.tracing import trace_targets
from careful.control.tracing.tracer import Target, Tracer
from careful.event import trace as event_trace
from careful.measure.inside import listening
from careful.measure.inside import packet_flow as flow
from careful.render.measuring import measure
from careful.render.tracing import events as events_report
from careful.render.tracing import trace as report
from careful.render.tracing import trace_plots
from careful.units import shown_time

_seconds = option("--time seconds", SECONDS, "How long to listen; Ctrl-C ends it earlier.", "5s")
_also = option(
    "--also NAME",
    str,
    "Listen to another instance on this machine too; may be repeated.",
    multiple=True,
)


@group(examples=[("carefulctl trace stages eth1", "what each stage takes, for 5 s")])
def trace() -> None:
    """Trace the stages of messages that flow, by probes in the datapath. Needs root and bcc."""


def _listening(targets: Sequence[Target], seconds: float) -> None:
    names = ", ".join(one.name for one in targets)
    limit = shown_time(seconds * 1e6)
    say_folded(f"carefulctl: listening to {names} for {limit}; Ctrl-C ends it", err=True)


@trace.command(
    "stages",
    examples=[
        ("carefulctl trace stages eth1 --time 20", "listen longer"),
        ("carefulctl trace stages eth1 --also h2", "in a lab, the other end too"),
    ],
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@_seconds
@_also
@plot_option
@instance_option
@json_option
def trace_stages(
    ifname: str | None,
    seconds: float,
    also: tuple[str, ...],
    plot_path: Path | None,
    instance: str | None,
) -> None:
    """Show how long a frame takes in each stage, and (g, G) if sizes differ enough.

    Listens to one stage at a time, so that no probe slows the stage that another one times.
    """
    targets = trace_targets.targets(ifname, instance, also)
    with Tracer(targets) as tracer:
        heard = listening.listen(tracer, seconds, ready=lambda: _listening(targets, seconds))
    found = listening.fits(heard, [one.name for one in targets])
    figures, text = report.stages_figures(heard, found), report.heard_table(heard, found)
    show(figures, text, instances=[one.name for one in targets], **measure.environment())
    if plot_path and found:
        trace_plots.stages(found, plot_path)


@trace.command(
    "frames", examples=[("carefulctl trace frames eth1 --plot burst.png", "draw the largest burst")]
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@_seconds
@option("--gap gap_us", duration(per_s=10**6), "Idle time that ends a burst.", f"{flow.GAP_US:g}us")
@option("--max-transfers most N", click.IntRange(min=1), "Show at most N.", flow.TRANSFERS_MOST)
@_also
@plot_option
@instance_option
@json_option
def trace_frames(
    ifname: str | None,
    seconds: float,
    gap_us: float,
    most: int,
    also: tuple[str, ...],
    plot_path: Path | None,
    instance: str | None,
) -> None:
    """Show the packet flow of the largest burst: which stage had which fragment when.

    Listens to all stages at once; the gaps between the boxes contain the probes' own time.
    """
    targets = trace_targets.targets(ifname, instance, also)
    owners = [one.name for one in targets]
    with Tracer(targets) as tracer:
        heard = listening.listen(
            tracer, seconds, (listening.ALL,), lambda: _listening(targets, seconds)
        )
    burst = flow.burst(listening.together(heard), owners, gap_us, most)
    figures, text = report.frames_figures(burst, heard), report.frames_table(burst, heard)
    show(figures, text, instances=owners, **measure.environment())
    if plot_path:
        trace_plots.frames(burst, plot_path)


@trace.command(
    "events",
    examples=[("carefulctl trace events DIR --plot who.png", "draw who sends to whom")],
    topics=("events",),
)
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@plot_option
@json_option
def trace_events(directory: Path, plot_path: Path | None) -> None:
    """Show who sent to whom in a program that ran with CAREFUL_EVENT_TRACE=DIR (P2 6.2).

    Also shows the gain of windows sized to the traffic. DIR has a file of each node. Needs no root.
    """
    traces = event_trace.read_all(directory)
    show(events_report.traffic_figures(traces), events_report.traffic_text(traces))
    if plot_path:
        events_report.plot(traces, plot_path)

"""`carefulctl measure`: the hops and stages of a path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from careful import measure as measurements
from careful.cli import complete
from careful.cli.command import flag, group, option
from careful.cli.common import options_of, plot_option, show
from careful.cli.exit_status import Exit
from careful.cli.local import Local, measured
from careful.cli.measuring.burst import burst
from careful.cli.measuring.logp import echo, logp
from careful.cli.params import BYTES, SECONDS, SHARE
from careful.control.instance import remote
from careful.control.state import kept_path
from careful.control.state.state_dir import StateDir, place
from careful.control.tracing import trace_targets
from careful.control.tracing.tracer import Tracer
from careful.measure.inside import clearbox as inside
from careful.measure.outside import blackbox as two_regressions
from careful.measure.path import answer as answers
from careful.measure.path import path_to_file
from careful.measure.path import pathchar as plan
from careful.measure.probes.exchange import ProbeSession
from careful.render.measuring import measure as report
from careful.render.measuring import measure_plots
from careful.render.measuring.pathchar_stages import stages_figures, stages_table
from careful.render.tracing import trace_plots
from careful.render.tracing.trace import clearbox_figures, clearbox_table

Command = Callable[..., object]

#: No limit of rounds in practice: --time ends a measurement.
_UNTIL_TIME: dict[str, object] = {"rounds_max": 1_000_000}

_BACKGROUND = (
    "Use at most 1 % of {} time, so the measurement takes 100 times as long. If --time is too "
    "short, the command says at once how long is needed."
)


def _over_sizes(
    defaults: plan.Options | two_regressions.Options | inside.Options,
    *,
    what: str = "payload",
    most: str = "what a frame holds",
    enough: str = "Stop when half of each interval is at most this share of its figure.",
) -> Callable[[Command], Command]:
    """Adds the options of a measurement with probes of several sizes, with these defaults."""
    count, least, time = defaults.sizes_count, defaults.min_bytes, f"{defaults.seconds:g}s"
    options = (
        option("--sizes sizes_count N", int, "How many sizes.", count),
        option("--min-bytes", BYTES, f"Smallest {what}.", least),
        option("--max-bytes", BYTES, f"Largest {what}.  [default: {most}]"),
        option("--precision", SHARE, enough, defaults.precision),
        option("--time seconds", SECONDS, "Begin no new round after this long.", time),
    )

    def add(command: Command) -> Command:
        for one in reversed(options):
            command = one(command)
        return command

    return add


@group(examples=[("carefulctl measure pathchar h2", "latency and rate of each hop")])
def measure() -> None:
    """Measure a path; every figure has a 95 % interval."""


@measure.command(
    examples=[
        ("carefulctl measure pathchar h2", "takes 25 s at most"),
        ("carefulctl measure pathchar h2 --time 2m --plot path.svg", "take longer, and draw it"),
    ]
)
@click.argument("host", shell_complete=complete.host)
@_over_sizes(
    plan.Options(),
    what="probe",
    most="what the path takes",
    enough="A hop is done when half of G's interval is this share of G.",
)
@option("--max-hops N", int, "Farthest hop to probe.", 30)
@option("--timeout timeout_s", SECONDS, "Longest wait for an answer.", "1s")
@flag("--background", _BACKGROUND.format("each link's"))
@option(
    "--stages/--no-stages",
    bool,
    "Measure the stages inside the hosts too.  [default: if careful is up at both ends]",
    None,
)
@flag("--one-clock", "Both ends are on one machine: check the sum of the stages.")
@plot_option
@measured
def pathchar(
    host: str,
    stages: bool | None,
    one_clock: bool,
    plot_path: Path | None,
    here: Local,
    **given: object,
) -> None:
    """Measure latency and G of each hop to HOST, across routers that know nothing of careful.

    The TTL of its UDP probes ends at each hop in turn, and routers answer with ICMP. This needs no
    privilege. If careful is up on both hosts, the stages inside them answer too: hostTx, netTx,
    every hop, netRx (XDP), hostRx (the engine), store (a scratch file on HOST).

    The result to a peer is kept for `tune explain`, if you may write the state directory.

    First come the round trip, the rate (or "at least") and the bottleneck; a line gives the reason
    if one is missing. The exit status is 5 if a figure of a hop or stage is withheld, or if
    --stages finds none.
    """
    options = options_of(plan.Options, _UNTIL_TIME | given)
    address = here.settings.resolve(host)
    way, why_not = remote.find_if(host, here.instance, here.settings, stages)
    route, effect = way or (None, None)
    found, ends, silent = path_to_file.measure(
        address,
        route,
        effect.driver if effect else "",
        options,
        required=stages is True,
        one_clock=one_clock,
    )
    why_not = why_not or silent
    answer = answers.of_path(found, ends)
    figures = {**answer.figures(), **report.pathchar_figures(found), "stages_reason": why_not}
    if ends is not None and effect is not None:
        figures |= {**effect.as_dict(), **stages_figures(ends)}
        text = stages_table(ends, host) + report.pathchar_summary(found)
    else:
        text = report.pathchar_table(found, host)
    if route and found.segments:
        kept_path.keep(StateDir(place(here.settings)), route.address.ip, figures)
    if why_not and stages is not False:
        text += f"\nstages inside the hosts: not measured ({why_not})"
    text = "\n".join([*report.answer(answer), text])
    show(figures, text, **report.inputs(address, options))
    if plot_path and found.segments:
        measure_plots.pathchar(found, host, plot_path, ends)
    is_short = not found.segments or any(one.G_us_per_KiB is None for one in found.segments)
    if is_short or (stages if ends is None else any(one.reason for one in ends.stages)):
        raise click.exceptions.Exit(Exit.WITHHELD)


@measure.command(
    examples=[
        ("carefulctl measure blackbox h2 -o h2.json", "keep it for `plan`"),
        (
            "carefulctl measure blackbox h2 --json | carefulctl plan --pipeline - --classes",
            "plan with it at once",
        ),
    ]
)
@click.argument("host", shell_complete=complete.host)
@_over_sizes(two_regressions.Options())
@option(
    "--at-bytes",
    BYTES,
    "Fragment size whose bottleneck to report, if it changes with the size.  [default: the "
    "largest]",
)
@flag("--background", _BACKGROUND.format("the path's"))
@plot_option
@measured
def blackbox(host: str, plot_path: Path | None, here: Local, **given: object) -> None:
    """Measure the bottleneck to HOST and the sum of the other stages, through careful itself.

    Careful must be up on both ends. The result is a pipeline for `carefulctl plan`. The exit
    status is 5 if a figure that `plan` needs is withheld.
    """
    options = options_of(two_regressions.Options, _UNTIL_TIME | given)
    route, effect = here.find(host)
    found = measurements.blackbox(route, options)
    figures = {**effect.as_dict(), **answers.of_blackbox(found).figures(), **found.figures()}
    show(figures, report.blackbox_table(found, host), **report.inputs(route.address, options))
    if plot_path:
        measure_plots.blackbox(found, host, plot_path)
    if found.reason:
        raise click.exceptions.Exit(Exit.WITHHELD)


@measure.command(
    examples=[
        ("carefulctl measure clearbox h2", "frames one by one"),
        ("carefulctl measure clearbox h2 --trains --plot stages.png", "back to back; draw it"),
    ]
)
@click.argument("host", shell_complete=complete.host)
@_over_sizes(inside.Options())
@flag("--trains", "Send frames back to back, like fragments, not one by one.")
@plot_option
@measured
def clearbox(host: str, plot_path: Path | None, here: Local, **given: object) -> None:
    """Measure (g, G) of each stage towards HOST, by probes inside the datapath.

    Needs root and bcc on this host.

    Frames follow one another as fast as they return; there is no --background.

    If HOST is another machine, time its stages there with `carefulctl trace stages` while this
    runs. With both ends on this machine, like in a lab, the result is a pipeline for `carefulctl
    plan`. The exit status is 5 if a stage's figures are withheld.
    """
    options = options_of(inside.Options, given)
    route, effect = here.find(host)
    with ProbeSession(route) as session:
        targets = trace_targets.ends(route)
        with Tracer(targets) as tracer:
            found = inside.ClearBox(session, tracer, [one.name for one in targets], options).run()
    figures = {**effect.as_dict(), **clearbox_figures(found)}
    show(figures, clearbox_table(found, host), **report.inputs(route.address, options))
    if plot_path:
        trace_plots.stages(found.stages, plot_path)
    if any(not one.supported for one in found.stages):
        raise click.exceptions.Exit(Exit.WITHHELD)


measure.add_command(burst)
measure.add_command(logp)
measure.add_command(echo)

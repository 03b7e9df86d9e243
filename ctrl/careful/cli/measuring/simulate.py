"""`carefulctl simulate`: messages through a pipeline in virtual time."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli.command import command, option
from careful.cli.common import json_option, plot_option, show
from careful.cli.measuring.sizes import read_pipeline
from careful.cli.params import BYTES, BYTES_LIST, duration
from careful.render.tuning import simulate as report

RULES = ("plan", "static", "fixed", "eager", "store-and-forward")


@command(
    examples=[
        ("carefulctl simulate --pipeline gam --bytes 4KiB --plot fragments.png", "draw the stages"),
        (
            "carefulctl simulate --pipeline gam --bytes 4K --rule eager --pulse-bytes 512",
            "cut by pulses",
        ),
        ("carefulctl simulate --pipeline trapeze --bytes 8K --rule eager --count 8", "send eight"),
    ]
)
@option(
    "--pipeline origin FILE",
    str,
    "Pipeline (TOML), a shipped name (see `plan --help`), or - for stdin.",
    required=True,
)
@option("--bytes message_bytes", BYTES, "Message size.", required=True)
@option("--count messages_count N", int, "Number of messages.", 1)
@option(
    "--every every_us", duration(per_s=10**6, zero=True), "Time between messages: 50us, 2ms.", "0"
)
@option(
    "--rule",
    click.Choice(RULES),
    "Rule by which stages cut: a plan, a static size, fixed or eager pulses, or none.",
    "plan",
)
@option("--strategy NAME", str, "Strategy of rule plan.", "best")
@option(
    "--fragment-bytes fragments_bytes",
    BYTES_LIST,
    "Sizes of the fragments of rule plan, instead of a strategy; one size for rule static.",
)
@option(
    "--pulse-bytes",
    BYTES_LIST,
    "Pulse threshold of each sink (the stages after the first), or one for all.",
    "512",
)
@option(
    "--progressive/--whole-transfers",
    bool,
    "Bytes reach the next stage while a transfer runs, or only after it.  [default: in pulses]",
    None,
)
@json_option
@plot_option
@option(
    "--figure",
    click.Choice(("space-time", "pulses")),
    "The figure that --plot draws: the bytes that each stage holds over time, or latency over the "
    "pulse threshold.",
    "space-time",
)
def simulate(
    origin: str, progressive: bool | None, plot_path: Path | None, figure: str, **given: object
) -> None:
    """Send messages through a pipeline in virtual time and see where the time goes."""
    if progressive is None:
        progressive = given["rule"] in ("fixed", "eager", "store-and-forward")
    given |= {"pipeline": read_pipeline(origin), "progressive": progressive}
    request = report.Request(origin, **given)  # type: ignore[arg-type]
    outcome = request.run()
    figures = report.simulation_figures(request, outcome)
    show(figures, report.simulation_text(request, figures), **request.inputs())
    if plot_path:
        report.draw(request, outcome, plot_path, figure)

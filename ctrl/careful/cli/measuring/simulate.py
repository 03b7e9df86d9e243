"""`carefulctl simulate`: messages through a pipeline in virtual time."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli.command import command
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
        (
            "carefulctl simulate --pipeline trapeze --bytes 8KiB --rule eager --messages 8",
            "eight messages",
        ),
    ]
)
@click.option(
    "--pipeline",
    "origin",
    required=True,
    metavar="FILE",
    help="Pipeline (TOML), a shipped name (see `plan --help`), or - for stdin.",
)
@click.option("--bytes", "message_bytes", type=BYTES, required=True, help="Message size.")
@click.option(
    "--messages",
    "messages_count",
    type=int,
    metavar="N",
    default=1,
    help="Number of messages.",
)
@click.option(
    "--every",
    "every_us",
    type=duration(per_s=10**6, zero=True),
    default="0",
    help="Time between messages: 50us, 2ms.",
)
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default="plan",
    help="Rule by which stages cut: a plan, a static size, fixed or eager pulses, or none.",
)
@click.option("--strategy", default="best", metavar="NAME", help="Strategy of rule plan.")
@click.option(
    "--fragments-bytes",
    type=BYTES_LIST,
    help="Sizes of the fragments of rule plan, instead of a strategy; one size for rule static.",
)
@click.option(
    "--pulse-bytes",
    type=BYTES_LIST,
    default="512",
    help="Pulse threshold of each sink (the stages after the first), or one for all.",
)
@click.option(
    "--progressive/--whole-transfers",
    default=None,
    help="Bytes reach the next stage while a transfer runs, or only after it.  [default: in "
    "pulses]",
)
@json_option
@plot_option
@click.option(
    "--figure",
    type=click.Choice(("space-time", "pulses")),
    default="space-time",
    help="What --plot draws: which stage holds which bytes when; or latency over the pulse "
    "threshold.",
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
    figures = report.figures(request, outcome)
    show(figures, report.text(request, figures), **request.inputs())
    if plot_path:
        report.draw(request, outcome, plot_path, figure)

"""`carefulctl simulate`: messages through a pipeline in virtual time."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli.command import command
from careful.cli.common import json_option, plot_option, say
from careful.cli.measuring.sizes import BYTES, BYTES_LIST, read_pipeline
from careful.cli.params import Duration
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
    "pipeline_name",
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
    show_default=True,
    help="Number of messages.",
)
@click.option(
    "--every",
    "every_us",
    type=Duration(per_s=10**6, zero=True),
    default=0.0,
    metavar="TIME",
    help="Time between messages: 50us, 2ms.  [default: 0]",
)
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default="plan",
    show_default=True,
    help="Rule by which stages cut: a plan, a static size, fixed or eager pulses, or none.",
)
@click.option(
    "--strategy", default="best", show_default=True, metavar="NAME", help="Strategy of rule plan."
)
@click.option(
    "--fragments-bytes",
    type=BYTES_LIST,
    help="Sizes of the fragments of rule plan, instead of a strategy; one size for rule static.",
)
@click.option(
    "--pulse-bytes",
    type=BYTES_LIST,
    default=(512,),
    help="Pulse threshold of each sink (the stages after the first), or one for all.  "
    "[default: 512]",
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
    show_default=True,
    help="What --plot draws: which stage holds which bytes when; or latency over the pulse "
    "threshold.",
)
def simulate(
    pipeline_name: str,
    message_bytes: int,
    messages_count: int,
    every_us: float,
    rule: str,
    strategy: str,
    fragments_bytes: tuple[int, ...] | None,
    pulse_bytes: tuple[int, ...],
    progressive: bool | None,
    as_json: bool,
    plot_path: Path | None,
    figure: str,
) -> None:
    """Send messages through a pipeline in virtual time and see where the time goes."""
    request = report.Request(
        origin=pipeline_name,
        pipeline=read_pipeline(pipeline_name),
        message_bytes=message_bytes,
        messages_count=messages_count,
        every_us=every_us,
        rule=rule,
        strategy=strategy,
        fragments_bytes=fragments_bytes,
        pulse_bytes=pulse_bytes,
        progressive=rule in ("fixed", "eager", "store-and-forward")
        if progressive is None
        else progressive,
    )
    outcome = request.run()
    say(report.text(request, outcome, as_json))
    if plot_path:
        report.draw(request, outcome, plot_path, figure)

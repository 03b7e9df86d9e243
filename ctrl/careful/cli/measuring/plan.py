"""`carefulctl plan`: the best fragmentation of a message, or of all message-size classes."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli.command import command, flag, option
from careful.cli.common import is_json, json_option, plot_option, result, say, show
from careful.cli.exit_status import Exit
from careful.cli.measuring.sizes import read_source
from careful.cli.params import BYTES
from careful.errors import WithheldError
from careful.model.planner import STRATEGIES
from careful.plan import FRAME_LIMITS
from careful.render.tables import folded
from careful.render.tuning import plan as report

FIGURES = ("latency", "space-time", "static", "improvement", "improvement-by-size")


_HELP = """Compute how a message is best cut into fragments for a pipeline of stages.

--figure chooses what --plot draws:

\b
latency              over the number of fragments, with the candidates
space-time           the bytes that each stage holds over time
static               the plan against fragments of 128 and 4096 bytes
improvement          --new over --old, by overhead and bandwidth of --stage
improvement-by-size  --new over --old, by its overhead and the message size

If a measurement withholds the figures that a plan needs, the answer is whole frames, with the
reason, and the exit status is 5.
"""


@command(
    help=_HELP,
    examples=[
        ("carefulctl plan --pipeline gam --bytes 4KiB", "all strategies side by side"),
        ("carefulctl plan --pipeline gms --classes", "all sixteen message sizes of the tune map"),
        ("carefulctl plan --pipeline gms --bytes 8KiB --plot curve.svg", "draw the latency"),
        ("carefulctl plan --pipeline network-disk --bytes 64K --json", "for a program"),
        (
            "carefulctl plan --pipeline path.json --pipeline box.json --classes",
            "of `measure pathchar h2 -o path.json` and `measure blackbox h2 -o box.json`",
        ),
    ],
)
@option(
    "--pipeline pipeline_names FILE",
    str,
    "Pipeline (TOML), a JSON measurement, a shipped name (gam, gms, network-disk, "
    "network-disk-network, trapeze), or - for stdin. Repeat it for files of pathchar, blackbox and "
    "logp of one path.",
    required=True,
    multiple=True,
)
@option("--bytes message_bytes", BYTES, "Message size: 4096, 64KiB, 50MB, 1G.")
@option("--strategy NAME", str, f"best (the fastest of all), {', '.join(STRATEGIES)}.", "best")
@option(
    "--fragments fragments_count K",
    int,
    "Number of fragments, with fixed or lp.  [default: the best]",
)
@option("--min-bytes", BYTES, "Smallest fragment.  [default: 1; 64 with --classes]")
@option("--max-bytes", BYTES, "Largest fragment.  [default: none; 3750 with --classes]")
@option("--header-bytes", BYTES, "Header of every fragment, charged to each stage's g.", "0")
@option(
    "--levels TOP,INNER",
    str,
    "Cuts of hierarchical at the top and inside: fixed, ramp or ramp-up-down.",
    "fixed,fixed",
)
@flag("--classes", "Plan the tune map's sixteen message-size classes.")
@json_option
@plot_option
@option("--figure", click.Choice(FIGURES), "The figure that --plot draws.", "latency")
@option("--stage varied NAME", str, "Stage that the improvement figures vary.")
@option("--old NAME", str, "Strategy to improve on.", "fixed")
@option("--new NAME", str, "Strategy that improves.", "hierarchical")
def plan(
    pipeline_names: tuple[str, ...],
    message_bytes: int | None,
    strategy: str,
    fragments_count: int | None,
    min_bytes: int | None,
    max_bytes: int | None,
    header_bytes: int,
    levels: str,
    classes: bool,
    plot_path: Path | None,
    figure: str,
    varied: str | None,
    old: str,
    new: str,
) -> None:
    """Compute one plan, or the tune map's."""
    origin = ", ".join(pipeline_names)
    if classes:
        if message_bytes is not None or fragments_count is not None or plot_path:
            raise click.UsageError(
                "--classes cannot be combined with --bytes, --fragments or --plot"
            )
    elif message_bytes is None:
        raise click.UsageError("--bytes is needed, or --classes")
    try:
        source = read_source(*pipeline_names)
    except WithheldError as error:
        show(*report.withheld(error, origin), pipeline=origin)
        raise click.exceptions.Exit(Exit.WITHHELD) from None
    if classes:
        least = FRAME_LIMITS.min_bytes if min_bytes is None else min_bytes
        most = FRAME_LIMITS.max_bytes if max_bytes is None else max_bytes
        inputs, figures, text = report.classes(source, origin, least, most, header_bytes)
        show(figures, text, **inputs)
        return
    assert message_bytes is not None
    top, _, inner = levels.partition(",")
    request = report.Request(
        origin=origin,
        source=source,
        message_bytes=message_bytes,
        strategy=strategy,
        fragments_count=fragments_count,
        min_bytes=1 if min_bytes is None else min_bytes,
        max_bytes=max_bytes,
        header_bytes=header_bytes,
        levels=(top, inner or "fixed"),
    )
    if is_json():
        answer = result(report.plan_figures(request), **request.inputs())
    else:
        answer = folded(report.plan_text(request))
    if plot_path:
        report.draw(request, plot_path, figure, varied, old, new)
    say(answer)

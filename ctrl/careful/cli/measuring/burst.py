"""`carefulctl measure burst`: how many frames a path takes at once."""

from __future__ import annotations

import click

from careful.cli import complete
from careful.cli.command import command
from careful.cli.common import show
from careful.cli.local import Local, measured
from careful.measure.probes.path_burst import BurstSession
from careful.render.measuring import burst as report
from careful.render.measuring.measure import environment


@command(examples=[("carefulctl measure burst h2", "also prints the window that h2 then has here")])
@click.argument("host", shell_complete=complete.host)
@measured
def burst(host: str, here: Local) -> None:
    """Measure how many frames the path from HOST takes at once, and bound its window by that.

    HOST sends trains of as many frames as this host has receive buffers, and this host counts the
    frames that arrive. The session begins a new epoch for the measurement, so for a moment nothing
    moves. The command is refused while data is under way between the two hosts. carefuld makes the
    same measurement when a session begins, and after a loss.
    """
    route, effect = here.find(host)
    with BurstSession(route) as session:
        info = session.measure()
    figures = {**effect.as_dict(), **report.burst_figures(info)}
    text = report.sentence(figures, host)
    show(figures, text, address=str(route.address), **environment())

"""`carefulctl status`: whether all is well, the settings in effect, peers and counters."""

from __future__ import annotations

import time

import click

from careful.cli import complete
from careful.cli.command import command, flag
from careful.cli.common import is_json, show
from careful.cli.exit_status import Exit
from careful.cli.local import Local, shared
from careful.control.instance import choice, instances, top
from careful.render.instance import status as report

#: Time over which rates are measured, seconds.
_RATES_S = 0.25


@command(
    examples=[
        ("carefulctl status", "every instance on this host"),
        ("carefulctl status -v", "every setting, and every counter that is not 0"),
        ("carefulctl status eth1 --json", "one instance, for a program"),
    ],
    topics=("counters", "exit-status", "words"),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@flag("-v --verbose", "Show every setting and counter too.")
@shared
def status(ifname: str | None, verbose: bool, here: Local) -> None:
    """Show whether all is well, the settings in effect, and the rates of each peer.

    The exit status is 3 if not all is well, or a carefuld does not answer. An idle peer that falls
    silent still counts as up: `carefulctl ping HOST` asks it.
    """
    running = choice.named_or_all(ifname, here.instance)
    brief = not (verbose or is_json())
    before = top.look(running, here.settings, with_messages=False)
    if brief and any(one.peers for one in before.found):
        time.sleep(_RATES_S)
        now = top.look(running, here.settings, with_messages=False)
    else:
        now = before
    found, mute = now.found, now.mute
    died = {} if ifname or here.instance else instances.died()
    figures = {"instances": found, "died": died, "mute": mute}
    text = (
        report.brief(found, top.rates(before, now), {**died, **mute})
        if brief
        else report.statuses(found, {**died, **mute})
    )
    show(figures, text)
    if mute or died or any(map(report.troubles, found)):
        raise click.exceptions.Exit(Exit.PARTLY)

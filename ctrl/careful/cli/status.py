"""`carefulctl status`: the settings in effect, peers and counters."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import command
from careful.cli.common import shared, show
from careful.cli.exit_status import Exit
from careful.control import config, instances
from careful.control import status as state
from careful.render import status as report


@command(
    examples=[
        ("carefulctl status", "every instance on this host"),
        ("carefulctl status eth1 --json", "one instance, for a program"),
    ],
    topics=("exit-status",),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@shared
@click.pass_context
def status(
    ctx: click.Context,
    ifname: str | None,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Show the settings in effect, the peers, and every counter that is not 0.

    The exit status is 3 if one of several carefulds does not answer.
    """
    settings = config.load(config_path)
    found, mute = state.gather_all(instances.named_or_all(ifname, instance), settings)
    died = {} if ifname or instance else instances.died()
    inputs = {"ifname": ifname, "instance": instance}
    figures = {"instances": found, "died": died, "mute": mute}
    show(as_json, "status", inputs, figures, report.statuses(found, died | mute))
    if mute:
        ctx.exit(Exit.PARTLY)

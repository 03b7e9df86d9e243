"""`carefulctl top`: what moves now."""

from __future__ import annotations

import time
from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import command
from careful.cli.common import say, shared, show
from careful.cli.exit_status import Exit
from careful.control import config, instances
from careful.control import top as figures
from careful.report import live
from careful.report import top as report


@command(
    examples=[
        ("carefulctl top", "every instance, until Ctrl-C"),
        ("carefulctl top eth1 --json", "one look, over a second"),
    ],
    topics=("services",),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@shared
@click.pass_context
def top(
    ctx: click.Context,
    ifname: str | None,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Show what moves between this host and its peers, until Ctrl-C.

    Of each peer: credits, bytes and messages a second since the last look, the mean latency of
    live messages (only root can see that), frames lost so far, and what its messages wait for.
    With --json it looks twice, a second apart, and ends.
    """
    settings = config.load(config_path)

    def look() -> figures.Look:
        return figures.look(instances.named_or_all(ifname, instance), settings)

    before = look()
    if as_json:
        time.sleep(1)
        now = look()
        found = {"instances": figures.rates(before, now), "mute": now.mute}
        show(True, "top", {"ifname": ifname, "instance": instance}, found, "")
        ctx.exit(Exit.PARTLY if now.mute else Exit.DONE)

    def text() -> str:
        nonlocal before
        time.sleep(live.PERIOD_S)
        last, before = before, look()
        return report.shown(figures.rates(last, before), before.mute)

    live.watch(text, say, in_place=True)

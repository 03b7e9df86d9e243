"""`carefulctl doctor`: what is in the way of `up`."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import command
from careful.cli.common import shared, show
from careful.cli.exit_status import Exit
from careful.control import doctor as stages
from careful.control.finding import FAIL
from careful.report.doctor import findings


@command(
    examples=[
        ("carefulctl doctor eth1", "changes nothing, needs no privilege"),
        ("carefulctl doctor --fix eth1", "puts right what it can, then looks"),
    ],
    topics=("exit-status",),
)
@click.argument("ifname", metavar="IFACE", shell_complete=complete.interface)
@click.option("--fix", is_flag=True, help="First put right what can be, as root.")
@shared
@click.pass_context
def doctor(
    ctx: click.Context,
    ifname: str,
    fix: bool,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Look at what careful needs, stage by stage.

    FAIL is what `up` would refuse, in its words; the options of `up` in the configuration
    count. Without --fix doctor changes nothing and needs no privilege, but sees more as root.
    Exit status 1 if a stage fails.
    """
    done = stages.fix(ifname, instance) if fix else []
    found = stages.check(ifname, instance, config_path)
    figures = {"findings": [vars(one) for one in found], "fixed": [vars(one) for one in done]}
    inputs = {"ifname": ifname, "fix": fix, "instance": instance}
    text = findings(found)
    if done:
        text = f"{findings(done)}\n\n{text}"
    show(as_json, "doctor", inputs, figures, text)
    if any(one.state == FAIL for one in found):
        ctx.exit(Exit.FAILED)

"""`carefulctl doctor`: what is in the way of `up`."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import command
from careful.cli.common import shared, show
from careful.cli.exit_status import Exit
from careful.control import doctor as checks
from careful.control.finding import FAIL
from careful.report.doctor import findings


@command(
    examples=[
        ("carefulctl doctor eth1", "check; changes nothing, needs no privilege"),
        ("carefulctl doctor --fix eth1", "fix what can be fixed, then check"),
    ],
    topics=("exit-status",),
)
@click.argument("ifname", metavar="IFACE", shell_complete=complete.interface)
@click.option("--fix", is_flag=True, help="First fix what can be fixed; needs root.")
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
    """Check that everything careful needs on IFACE is there.

    FAIL marks what `up` would refuse, and says why in the same words; warn marks what `up`
    accepts but would work better otherwise; ? marks what only root can see. The options of
    `up` in the configuration are taken into account. Without --fix, doctor changes nothing and
    needs no privilege. The exit status is 1 if a check fails.
    """
    done = checks.fix(ifname, instance) if fix else []
    found = checks.check(ifname, instance, config_path)
    figures = {"findings": [vars(one) for one in found], "fixed": [vars(one) for one in done]}
    inputs = {"ifname": ifname, "fix": fix, "instance": instance}
    text = findings(found)
    if done:
        text = f"{findings(done)}\n\n{text}"
    show(as_json, "doctor", inputs, figures, text)
    if any(one.state == FAIL for one in found):
        ctx.exit(Exit.FAILED)

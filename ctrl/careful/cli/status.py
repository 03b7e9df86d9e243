"""`carefulctl status` and `doctor`: what is in effect, and what is in the way."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli.command import command
from careful.cli.common import json_option, shared, show
from careful.control import config, instances
from careful.control import doctor as stages
from careful.control import status as state
from careful.report import status as report


@command(
    examples=[
        ("carefulctl status", "every instance that is up here"),
        ("carefulctl status eth1 --json", "one, for a program"),
    ],
    topics=("exit-status",),
)
@click.argument("ifname", metavar="[IFACE]", required=False)
@shared
def status(
    ifname: str | None, instance: str | None, config_path: Path | None, as_json: bool
) -> None:
    """Show what is in effect, the peers, and every counter that is not 0."""
    settings = config.load(config_path)
    found = [state.gather(one, settings) for one in instances.named_or_all(ifname, instance)]
    text = "\n\n".join(report.status(one) for one in found) or "careful is not up"
    inputs = {"ifname": ifname, "instance": instance}
    show(as_json, "status", inputs, {"instances": found}, text)


@command(
    examples=[
        ("carefulctl doctor eth1", "changes nothing, needs no privilege"),
        ("carefulctl doctor --fix eth1", "puts right what it can"),
    ],
    topics=("exit-status",),
)
@click.argument("ifname", metavar="IFACE")
@click.option("--fix", is_flag=True, help="Put right what can be, as root; then look.")
@click.option("--instance", envvar="CAREFUL_INSTANCE", metavar="NAME", help="Which carefuld.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, ifname: str, fix: bool, instance: str | None, as_json: bool) -> None:
    """Look at what careful needs, stage by stage.

    Without --fix it changes nothing and needs no privilege. Exit status 1 if a stage fails.
    """
    done = stages.fix(ifname, instance) if fix else []
    found = stages.check(ifname, instance)
    figures = {"findings": [vars(one) for one in found], "fixed": [vars(one) for one in done]}
    inputs = {"ifname": ifname, "fix": fix, "instance": instance}
    text = report.findings(found)
    if done:
        text = f"{report.findings(done)}\n\n{text}"
    show(as_json, "doctor", inputs, figures, text)
    if any(one.state == stages.FAIL for one in found):
        ctx.exit(1)

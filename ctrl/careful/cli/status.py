"""`carefulctl status` and `doctor`: what is in effect, and what is in the way."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli.common import json_option, shared, show
from careful.control import config, instances
from careful.control import doctor as stages
from careful.control import status as state
from careful.report import status as report


@click.command()
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


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[check|init|fini] IFACE")
@click.option("--instance", envvar="CAREFUL_INSTANCE", metavar="NAME", help="Which carefuld.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, words: tuple[str, ...], instance: str | None, as_json: bool) -> None:
    """Look at what careful needs, stage by stage.

    check (the default) changes nothing and needs no privilege; init puts right what it
    can; fini takes back what is left of an instance. Exit status 1 if a stage fails.
    """
    what, ifname = words if len(words) == 2 else ("check", words[0])
    actions = {"check": stages.check, "init": stages.init, "fini": stages.fini}
    if len(words) > 2 or what not in actions:
        raise click.UsageError("doctor [check|init|fini] IFACE is wanted")
    found = actions[what](ifname, instance)
    figures = {"findings": [vars(one) for one in found]}
    inputs = {"action": what, "ifname": ifname, "instance": instance}
    show(as_json, "doctor", inputs, figures, report.findings(found))
    if any(one.state == stages.FAIL for one in found):
        ctx.exit(1)

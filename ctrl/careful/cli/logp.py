"""`carefulctl measure logp`: what the endpoints themselves take."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from careful.cli.common import shared, show
from careful.control import config, remote
from careful.measure.logp import LogP, Options
from careful.measure.signature import Session, Target
from careful.report import logp as report
from careful.report import measuring


@click.command()
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option(
    "--precision",
    default=0.05,
    show_default=True,
    help="Half of a 95 % interval over the figure at which it is enough.",
)
@click.option("--seconds", default=20.0, show_default=True, help="No further batch after that.")
@click.option("--max-messages", default=4096, show_default=True, help="Of the longest burst.")
@shared
def logp(
    hosts: tuple[str, ...],
    precision: float,
    seconds: float,
    max_messages: int,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """os, or, g and L of careful's messages to HOST (to several in turn: one to many).

    Our carefuld issues bursts of M requests with D of computation after each, as a program
    does that owns the queue; careful must be up on both ends. It does nothing else but move
    frames while a burst lasts, a tenth of a second as a rule.
    """
    options = Options(precision=precision, seconds=seconds, messages_max=max_messages)
    known = config.load(config_path)
    found = [remote.find(host, instance, known, timeout_s=5.0) for host in hosts]
    route, effect = found[0]
    targets = [Target(one.address, host) for (one, _), host in zip(found, hosts, strict=True)]
    with Session(route.socket, route.instance, targets) as session:
        result = LogP(session.layer(), options).run()
    inputs = {
        "hosts": list(hosts),
        "addresses": [str(target.address) for target in targets],
        **asdict(options),
        **measuring.environment(),
    }
    figures = {**effect.as_dict(), **report.figures(result)}
    show(as_json, "measure logp", inputs, figures, report.text(result, session.host))

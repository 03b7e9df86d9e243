"""`carefulctl doctor`: finds and fixes what prevents `up`."""

from __future__ import annotations

import sys

import click

from careful.cli import complete
from careful.cli.command import command, flag
from careful.cli.common import say_folded, show
from careful.cli.exit_status import Exit
from careful.cli.local import Local, shared
from careful.control.checks import doctor as checks
from careful.control.checks.check_result import FAIL, Finding
from careful.render.instance.doctor import findings


def _fixed(ifname: str, here: Local, yes: bool) -> list[Finding]:
    steps = checks.plan(ifname, here.instance, here.config_path)
    asked = [one for one in steps if not one.skipped]
    if asked and not yes:
        for step in asked:
            say_folded(f"{step.check:10} {step.what}", err=True)
        if not sys.stdin.isatty():
            raise click.UsageError(
                "--fix asks first, and standard input is not a terminal: add --yes"
            )
        if not click.confirm("Do this?", err=True):
            return []
    return checks.fix(steps)


@command(
    examples=[
        ("carefulctl doctor eth1", "check; changes nothing, needs no privilege"),
        ("carefulctl doctor h2", "check the way to h2: route, firewall, frames both ways"),
        ("carefulctl doctor --fix eth1", "say what can be fixed, ask, fix it, and check"),
    ],
    topics=("exit-status",),
)
@click.argument("names", metavar="[IFACE] [HOST]", nargs=-1, shell_complete=complete.interface)
@flag("--fix", "First fix the faults of IFACE that can be fixed; needs root.")
@flag("--yes", "With --fix: do not ask first.")
@shared
def doctor(names: tuple[str, ...], fix: bool, yes: bool, here: Local) -> None:
    """Check that everything careful needs on IFACE is there, and try HOST.

    With HOST, doctor tries all addresses of HOST through the carefuld on IFACE: the route, a
    session, full frames to HOST, and its answers. This needs root or membership in carefuld's
    group. Without IFACE, the route to HOST selects the interface; without both, doctor checks the
    interface that careful is up on.

    FAIL marks a fault that `up` would refuse, in the same words; warn marks a setting that `up`
    accepts although another one works better. Both name the remedy. ? marks a check that only root
    or `up` can make. doctor checks the options of the configuration, or the options that careful
    runs with if it is up. Without --fix, doctor changes nothing and needs no privilege. With --fix,
    it lists its changes and asks first. It names settings of the whole machine (hugepages, for
    example), and settings of an interface on which careful is up, but leaves them alone. The exit
    status is 1 if a check fails.
    """
    if yes and not fix:
        raise click.UsageError("--yes needs --fix")
    if len(names) > 2:
        raise click.UsageError(f"at most one interface and one host: {' '.join(names)}")
    ifname, host = checks.split(names or (here.ifname(None),), here.config_path)
    done = _fixed(ifname, here, yes) if fix else []
    found = checks.check(ifname, here.instance, here.config_path, host)
    figures = {"findings": [vars(one) for one in found], "fixed": [vars(one) for one in done]}
    text = findings(found)
    if done:
        text = f"{findings(done)}\n\n{text}"
    show(figures, text, ifname=ifname, host=host or None)
    if any(one.state == FAIL for one in found):
        raise click.exceptions.Exit(Exit.FAILED)

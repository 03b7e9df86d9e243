"""`carefulctl tune auto` and `tune explain`: the controller, and its decisions."""

from __future__ import annotations

from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import command, flag, option
from careful.cli.common import is_json, plot_option, say_folded, show
from careful.cli.local import Local, shared
from careful.control.instance import instances
from careful.control.plans import tune_peers
from careful.render.tuning import explain as report
from careful.tuning import explain as figures
from careful.tuning.controller.loop import Loop
from careful.tuning.instance_path import tunable

peer_option = option(
    "--peer peers HOST",
    str,
    "Only this peer; may be repeated.",
    multiple=True,
    shell_complete=complete.host,
)


@command(
    "auto",
    examples=[
        ("carefulctl tune auto eth1", "all peers, until Ctrl-C"),
        ("carefulctl tune auto eth1 --peer h2 --once", "measure, change and verify once"),
    ],
    topics=("autotune", "tuning"),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@peer_option
@flag("--once", "End after one round: measure, change, verify.")
@shared
def tune_auto(ifname: str | None, peers: tuple[str, ...], once: bool, here: Local) -> None:
    """Measure the path to each peer, change what gains, and keep what holds on live messages.

    Runs next to carefuld until Ctrl-C. A change needs a predicted gain that exceeds its
    uncertainty. It is compared with the former plan on live messages, in turn, and undone if the
    gain does not hold. If nothing can be predicted, several plans are compared first (not with
    --once). Without --peer, all peers with a session are tuned. One process can tune an instance at
    a time; traffic goes on if it ends.
    """
    ifname, settings = here.ifname(ifname), here.settings
    one = tunable(ifname, here.instance)
    instances.need_root(f"tune auto {ifname}")

    def print_decision(peer: str, decision: dict[str, object]) -> None:
        say_folded(f"{peer}: {report.decision(decision)}", err=is_json())

    def warned(text: str) -> None:
        say_folded(f"carefulctl: {text}", err=True)

    found = Loop(one, peers, settings, print_decision, warned).run(once)
    if is_json():
        paths = [{"address": name, **one.as_dict()} for name, one in found.items()]
        show({"paths": paths}, "", ifname=ifname)


@command(
    "explain",
    examples=[
        ("carefulctl tune explain eth1", "what is in effect, and why"),
        ("carefulctl tune explain eth1 --peer h2 --plot h2.svg", "latency over message size"),
    ],
    topics=("autotune", "tuning"),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@peer_option
@plot_option
@shared
def tune_explain(
    ifname: str | None, peers: tuple[str, ...], plot_path: Path | None, here: Local
) -> None:
    """Show what is in effect and why: plans, predictions, latencies of live messages, decisions."""
    ifname, settings = here.ifname(ifname), here.settings
    session = tune_peers.session(ifname, here.instance, settings)
    found = figures.gather(session, peers, settings)
    show(found, report.explanation_text(found), ifname=ifname)
    if plot_path:
        report.draw(found, plot_path)

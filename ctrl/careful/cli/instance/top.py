"""`carefulctl top`: the rates of each peer."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from careful.cli import complete
from careful.cli.command import command, option
from careful.cli.common import is_json, say_folded, show
from careful.cli.exit_status import Exit
from careful.cli.local import Local, shared
from careful.control.instance import choice
from careful.control.instance import top as figures
from careful.render import refresh
from careful.render.instance import top as report


@command(
    examples=[
        ("carefulctl top", "every instance, until q or Ctrl-C"),
        ("carefulctl top eth1 --json", "one look, over a second"),
    ],
    topics=("services",),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@option("-n --count N", click.IntRange(1), "End after N looks.")
@shared
def top(ifname: str | None, count: int | None, here: Local) -> None:
    """Show what moves between this host and its peers, until q or Ctrl-C.

    Each peer has a row: free credits, rates, messages a second and their mean latency, frames
    lost, and what its messages wait for. They wait for credits, for frames that have not left, or
    for a slow client here. Only root sees messages. A sent message is timed until its answer, and a
    message for a file here from its first frame until it is written. The busiest peers come first.
    Keys sort the rows: s by bytes sent, r by bytes received, m by messages, l by latency; any other
    key restores the order. With --json, the command prints one second's figures and ends.
    """

    def look() -> figures.Look:
        return figures.look(choice.named_or_all(ifname, here.instance), here.settings)

    before = look()
    if is_json():
        time.sleep(1)
        now = look()
        show({"instances": figures.rates(before, now), "mute": now.mute}, "")
        raise click.exceptions.Exit(Exit.PARTLY if now.mute else Exit.DONE)

    time.sleep(refresh.PERIOD_S)
    watched = Watched(look, before)
    for number in range(count or 0):
        time.sleep(refresh.PERIOD_S if number else 0)
        say_folded(watched.again())
    if count:
        return
    refresh.watch(watched.again, say_folded, in_place=True, press=watched.press)


class Watched:
    """The text that `top` shows, and the order of its rows."""

    def __init__(self, look: Callable[[], figures.Look], first: figures.Look) -> None:
        self._look, self._now, self._order = look, first, ""
        self._rates: list[figures.Rates] = []

    def again(self) -> str:
        last, self._now = self._now, self._look()
        self._rates = figures.rates(last, self._now)
        return self._text()

    def press(self, key: str) -> str:
        self._order = key if key in report.ORDERS else ""
        return self._text()

    def _text(self) -> str:
        text = report.shown(self._rates, self._now.mute, self._order)
        return f"{text}\n\n{report.keys(self._order)}" if refresh.has_keys() else text

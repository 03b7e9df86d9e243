"""`carefulctl tune`: fragment sizes and minpulse of a running instance."""

from __future__ import annotations

from typing import BinaryIO

import click

from careful.cli import complete
from careful.cli.command import flag, group, option
from careful.cli.common import is_json, result, say, say_folded, show
from careful.cli.local import Local, shared
from careful.cli.measuring.tune_auto import peer_option, tune_auto, tune_explain
from careful.cli.params import BYTES, Parsed
from careful.control.plans import tune_entry as entries
from careful.control.plans import tune_file, tune_peers
from careful.errors import CarefulError, InputError
from careful.plan import CLASS_COUNT, class_of
from careful.render import refresh
from careful.render.tables import folded
from careful.render.tuning import tune as report
from careful.tuning import manual
from careful.units import parse_bytes


@group(examples=[("carefulctl tune show eth1", "what is in effect")])
def tune() -> None:
    """See and set how messages are cut into fragments, while they flow."""


def _figures(session: tune_peers.Session, rows: list[tune_peers.Row]) -> dict[str, object]:
    effect = session.effect.as_dict() if session.effect else {}
    return {**effect, "peers": [report.tune_row(row) for row in rows]}


def _classes(text: str) -> tuple[int, ...]:
    """Returns the message-size classes of an index, of the size of a message, or all."""
    if text == "all":
        return tuple(range(CLASS_COUNT))
    if text in map(str, range(CLASS_COUNT)):
        return (int(text),)
    # A bare number is a class: 16 is out of range, not a message of 16 bytes, which has class 0.
    if (nbytes := parse_bytes(text)) < 1 or text[-1].isdecimal():
        what = f"{text} is neither a class from 0 to {CLASS_COUNT - 1} nor a message size"
        raise InputError(f"{what}: a size needs a unit, such as 8KiB")
    return (class_of(nbytes),)


@tune.command(
    "show",
    examples=[
        ("carefulctl tune show eth1 --peer h2", "for one peer"),
        ("carefulctl tune show eth1 --watch", "again whenever it changes, until Ctrl-C"),
    ],
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@peer_option
@flag("--watch", "Show it again whenever it changes, until Ctrl-C.")
@shared
def tune_show(ifname: str | None, peers: tuple[str, ...], watch: bool, here: Local) -> None:
    """Show what is in effect, per peer and message-size class."""
    ifname, settings = here.ifname(ifname), here.settings

    def look() -> str:
        session = tune_peers.session(ifname, here.instance, settings)
        rows = tune_peers.show(session, peers, settings)
        if is_json():
            return result(_figures(session, rows), ifname=ifname)
        return folded(report.tuning([(row.peer, row.tune) for row in rows]))

    if watch:
        refresh.watch(look, say, in_place=not is_json())
    say(look())


@tune.command(
    "set",
    examples=[
        ("carefulctl tune set eth1 --fragment-bytes 2KiB", "for all peers, now and later"),
        ("carefulctl tune set eth1 --class 64K --fragment-bytes 3750", "only messages of 64 KiB"),
        ("carefulctl tune set eth1 --auto", "give all classes back to tune auto"),
        ("carefulctl tune set eth1 --default", "as after `up`: undoes every tune set"),
    ],
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@option("--fragment-bytes N", BYTES, "Payload of each fragment.")
@flag("--auto release", "Give classes that were set by hand back to tune auto.")
@flag("--default undo", "Undo all: set what `up` sets, and release all classes.")
@option("--minpulse-bytes N", BYTES, "Least number of bytes that a sink takes at once.")
@peer_option
@option(
    "--class classes CLASS",
    Parsed("class", _classes),
    "Only this class: 0 to 15, a message's size with its unit (8KiB), or all; may be repeated.",
    multiple=True,
)
@option(
    "--sink sinks",
    click.Choice(sorted(entries.SINKS)),
    "Only this sink, for --minpulse-bytes; may be repeated.  [default: all]",
    multiple=True,
)
@shared
def tune_set(
    ifname: str | None,
    fragment_bytes: int | None,
    minpulse_bytes: int | None,
    release: bool,
    undo: bool,
    peers: tuple[str, ...],
    classes: tuple[tuple[int, ...], ...],
    sinks: tuple[str, ...],
    here: Local,
) -> None:
    """Set fragment size and minpulse; in effect from the next message on.

    Without --peer the settings apply to all peers, now and later. `tune auto` leaves settings made
    by hand alone, until --auto gives the classes back.
    """
    ifname, settings = here.ifname(ifname), here.settings
    chosen = sorted({one for several in classes for one in several}) or [*entries.ALL_CLASSES]
    kinds = sinks or tuple(entries.SINKS)
    if release and (fragment_bytes or minpulse_bytes is not None or peers):
        raise click.UsageError("--auto can be combined only with --class")
    if undo and (release or fragment_bytes or minpulse_bytes is not None or classes or sinks):
        raise click.UsageError("--default can be combined only with --peer")
    try:
        given = fragment_bytes, minpulse_bytes, chosen, kinds
        classes_set = {} if release or undo else entries.change(*given)
    except CarefulError as error:
        raise click.UsageError(str(error)) from None
    session = tune_peers.session(ifname, here.instance, settings)
    if release:
        manual.release(session, chosen)
        rows = tune_peers.show(session, peers, settings)
    elif undo:
        rows = manual.undo(session, peers, settings)
    else:
        rows = manual.change(session, peers, settings, classes_set)
    text = report.tuning([(row.peer, row.tune) for row in rows])
    if note := report.clipped(fragment_bytes, session.frame_bytes):
        say_folded(f"carefulctl: {note}", err=True)
    show(_figures(session, rows), text, ifname=ifname, classes=chosen, sinks=kinds)


@tune.command(
    "apply",
    examples=[
        ("carefulctl tune apply eth1 plan.json", "what `plan --classes --json` printed"),
        ("carefulctl tune apply eth1 kept.json --of h2 --peer h3", "h2's settings, for h3"),
    ],
)
@click.argument("ifname", metavar="IFACE", shell_complete=complete.interface)
@click.argument("file", type=click.File("rb"))
@peer_option
@option("--of PEER", str, "Peer whose settings to take from a file with several peers.")
@shared
def tune_apply(
    ifname: str, file: BinaryIO, peers: tuple[str, ...], of: str | None, here: Local
) -> None:
    """Apply the settings of a file, from the next message on.

    FILE is the output of `plan --classes --json` or `tune show --json`; - is standard input.
    Classes and sinks that FILE does not name stay unchanged. Without --peer the settings apply to
    all peers, now and later.
    """
    settings = here.settings
    classes = tune_file.parse(file.read(), file.name, of)
    session = tune_peers.session(ifname, here.instance, settings)
    rows = manual.change(session, peers, settings, classes)
    text = report.tuning([(row.peer, row.tune) for row in rows])
    show(_figures(session, rows), text, file=file.name)


tune.add_command(tune_auto)
tune.add_command(tune_explain)

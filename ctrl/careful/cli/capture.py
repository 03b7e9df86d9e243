"""`carefulctl capture`: the frames of an instance, as a file for Wireshark."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from careful.cli import complete
from careful.cli.command import command
from careful.cli.common import instance_option, say
from careful.cli.params import SECONDS
from careful.control import instances
from careful.control.capture import Capture, Frame
from careful.control.status import port_of
from careful.errors import from_os
from careful.render import capture as report
from careful.render import pcapng

#: Time between two looks at captured frames, seconds.
_LOOK_S = 0.2


def _to(path: Path | None, ifname: str, opened: ExitStack) -> Callable[[Frame], None]:
    if path is None:
        return lambda frame: say(report.line(frame))
    if str(path) == "-":
        file: BinaryIO = sys.stdout.buffer
        opened.callback(file.flush)
    else:
        file = opened.enter_context(path.open("wb"))
    return pcapng.Writer(file, ifname).write


def _stopped(opened: ExitStack) -> Callable[[], bool]:
    """Returns a function that reports whether Ctrl-C was pressed; the first press raises nothing.

    An exception could leave a frame half written, or get lost inside bcc's callback. `opened`
    restores the handler.
    """
    before, pressed = signal.getsignal(signal.SIGINT), False

    def note(*_: object) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, before)

    if before is signal.default_int_handler:  # not if it is ignored (nohup, `&`)
        signal.signal(signal.SIGINT, note)
        opened.callback(signal.signal, signal.SIGINT, before)
    return lambda: pressed


@command(
    examples=[
        ("carefulctl capture eth1 -w frames.pcapng --time 5", "what passes in 5 s"),
        ("carefulctl capture eth1 --dropped", "print what XDP drops, and why, until Ctrl-C"),
        ("carefulctl capture eth1 -w - | wireshark -k -i -", "look at it live"),
    ],
    topics=("lab",),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@click.option(
    "-w",
    "path",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write a pcapng file; - is standard output.  [default: print a line a frame]",
)
@click.option("--time", "seconds", type=SECONDS, metavar="TIME", help="End after this time.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N frames.")
@click.option("--dropped", is_flag=True, help="Show only frames that XDP dropped.")
@instance_option
def capture(
    ifname: str | None,
    path: Path | None,
    seconds: float | None,
    count: int | None,
    dropped: bool,
    instance: str | None,
) -> None:
    """Capture the frames of an interface that careful is up on, until Ctrl-C. Needs root and bcc.

    tcpdump does not see AF_XDP frames. This command shows the frames that XDP received on careful's
    port, the verdict on each, and the frames that left. `help lab` names Wireshark's dissector.
    Frames are cut after 4056 bytes. Frames that did not fit in the capture are counted at the end.
    The capture also ends with carefuld.
    """
    one = instances.on_interface(ifname, instance) if ifname else instances.choose(instance)
    caught = 0
    with ExitStack() as opened:
        source = opened.enter_context(Capture(one, port_of(one)))
        try:
            write = _to(path, one.ifname, opened)
        except OSError as error:
            raise from_os(error, str(path)) from None

        def take(frames: list[Frame]) -> None:
            nonlocal caught
            for frame in frames:
                if caught != count and (not dropped or frame.verdict in pcapng.WHY):
                    write(frame)
                    caught += 1
            sys.stdout.flush()

        stopped = _stopped(opened)
        click.echo(f"carefulctl: capturing {one.ifname}; Ctrl-C ends it", err=True)
        until = time.monotonic() + seconds if seconds else None
        over = None
        while not (stopped() or over or caught == count or (until and time.monotonic() >= until)):
            take(source.collect(_LOOK_S))
            over = source.ended()
        take(source.collect(0))  # frames since the last look
        lost = 0 if over else source.lost_count
    more = f", {lost} more did not fit" if lost else ""
    click.echo(f"carefulctl: {caught} frames{more}", err=True)
    if over:
        raise over

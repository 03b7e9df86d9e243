"""`carefulctl capture`: the frames of an instance, as a file for Wireshark."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO

import click

from careful.cli import complete
from careful.cli.command import command, flag, option
from careful.cli.common import say_folded
from careful.cli.local import Local, local
from careful.cli.params import SECONDS
from careful.control.instance import choice
from careful.control.instance.status import info_of
from careful.control.options.config import Config
from careful.control.tracing.capture import SHORT_BYTES, SNAP_BYTES, Capture, Frame
from careful.errors import about
from careful.render.tracing import capture as report
from careful.render.tracing import pcapng

#: Time between two looks at captured frames, seconds.
_LOOK_S = 0.05
#: Bytes of a frame in which its addresses are, with two VLAN tags.
_ADDRESSES_BYTES = 62


def _writer(
    path: Path | None, ifname: str, snap_bytes: int, opened: ExitStack
) -> Callable[[Frame], None]:
    if path is None:
        return lambda frame: say_folded(report.line(frame))
    if str(path) == "-":
        file: BinaryIO = sys.stdout.buffer
        opened.callback(file.flush)
    else:
        file = opened.enter_context(path.open("wb"))
    return pcapng.Writer(file, ifname, snap_bytes).write


def _filter(
    hosts: tuple[str, ...], dropped: bool, control: bool | None, settings: Config
) -> Callable[[Frame], bool]:
    """Returns a function that reports whether a frame is wanted."""
    found = [one for host in hosts for one in settings.resolve_all(host)]
    packed = [ip_address(one.ip).packed for one in found]

    def wanted(frame: Frame) -> bool:
        if dropped and frame.verdict not in pcapng.WHY:
            return False
        if packed and not any(one in frame.data[:_ADDRESSES_BYTES] for one in packed):
            return False
        return control is None or control == report.is_control(frame)

    return wanted


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
        ("carefulctl capture eth1 -w heads.pcapng -s 128", "keeps up with a transfer"),
        ("carefulctl capture eth1 --host h2 --control", "print h2's handshakes and questions"),
        ("carefulctl capture eth1 --dropped", "print what XDP drops, and why, until Ctrl-C"),
        ("carefulctl capture eth1 -w - | wireshark -k -i -", "look at it live"),
    ],
    topics=("lab",),
)
@click.argument("ifname", metavar="[IFACE]", required=False, shell_complete=complete.interface)
@option(
    "-w path FILE",
    click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    "Write a pcapng file; - is standard output.  [default: print a line a frame]",
)
@option("--time seconds", SECONDS, "End after this time.")
@option("--count N", click.IntRange(min=1), "End after N frames.")
@flag("--dropped", "Show only frames that XDP dropped.")
@option(
    "--host hosts HOST",
    str,
    "Only frames from or to HOST; may be repeated.",
    multiple=True,
    shell_complete=complete.host,
)
@option("--control/--data", bool, "Only control messages, or only all other frames.", None)
@option(
    "-s --snap snap_bytes BYTES",
    click.IntRange(1, SNAP_BYTES),
    f"Keep this much of each frame. With {SHORT_BYTES} or less, room is kept for 50 times as "
    "many frames.",
    SNAP_BYTES,
)
@local
def capture(
    ifname: str | None,
    path: Path | None,
    seconds: float | None,
    count: int | None,
    dropped: bool,
    hosts: tuple[str, ...],
    control: bool | None,
    snap_bytes: int,
    here: Local,
) -> None:
    """Capture the frames of an interface that careful is up on, until Ctrl-C. Needs root and bcc.

    tcpdump does not see AF_XDP frames. This command shows the frames that XDP received on careful's
    port, the verdict on each, and the frames that left. `help lab` names Wireshark's dissector.
    Frames that did not fit in the capture are counted at the end. The capture also ends with
    carefuld.
    """
    name = here.instance
    one = choice.on_interface(ifname, name) if ifname else choice.choose(name)
    wanted, caught = _filter(hosts, dropped, control, here.settings), 0
    with ExitStack() as opened:
        source = opened.enter_context(Capture(one, info_of(one).port, snap_bytes))
        with about(str(path)):
            write = _writer(path, one.ifname, snap_bytes, opened)

        def take(frames: list[Frame]) -> None:
            nonlocal caught
            for frame in frames:
                if caught != count and wanted(frame):
                    write(frame)
                    caught += 1
            sys.stdout.flush()

        stopped = _stopped(opened)
        say_folded(f"carefulctl: capturing {one.ifname}; Ctrl-C ends it", err=True)
        until = time.monotonic() + seconds if seconds else None
        over = None
        while not (stopped() or over or caught == count or (until and time.monotonic() >= until)):
            take(source.collect(_LOOK_S))
            over = source.ended()
        take(source.collect(0))  # frames since the last look
        lost = 0 if over else source.lost_count
    more = f", {lost} more did not fit" if lost else ""
    say_folded(f"carefulctl: {caught} frames{more}", err=True)
    if over:
        raise over

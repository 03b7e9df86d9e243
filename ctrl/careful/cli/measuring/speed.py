"""`carefulctl speed` and `ping`: what a path does, in half a minute, and in a round trip."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import command, flag, option
from careful.cli.common import is_json, plot_option, say_folded, show
from careful.cli.exit_status import Exit
from careful.cli.local import Local, measured, shared
from careful.cli.params import BYTES, SECONDS
from careful.errors import CarefulError, InputError
from careful.measure.endpoints.logp import Layer
from careful.measure.path import speed as rounds
from careful.measure.probes import tcp
from careful.measure.probes.bursts import Session
from careful.measure.probes.exchange import ProbeSession
from careful.render.measuring import speed as report
from careful.render.measuring.measure import environment
from careful.units import shown_time, time_unit

#: TCP port of `speed --serve`: next to careful's own UDP port.
_PORT = 51967
#: Most requests under way over TCP: the next is there when an answer has left.
_TCP_CAPACITY = 2


@command(
    examples=[
        ("host2# carefulctl speed --serve", "answer TCP until Ctrl-C"),
        ("host1# carefulctl speed host2", "then compare, for half a minute"),
        ("carefulctl speed h2 --plot h2.png", "and draw it"),
    ],
    topics=("path", "performance"),
)
@click.argument("host", required=False, shell_complete=complete.host)
@flag("-s --serve", "Answer TCP for a `speed` elsewhere, until Ctrl-C.")
@option("-p --port N", click.IntRange(1, 65535), "TCP port of --serve.", _PORT)
@option("-t --time seconds", SECONDS, "How long.", "30s")
@plot_option
@measured
def speed(
    host: str | None, serve: bool, port: int, seconds: float, plot_path: Path | None, here: Local
) -> None:
    """Compare careful with kernel TCP to HOST: a request, a block and a stream, in turn.

    careful must be up on both ends, and `carefulctl speed --serve` must run on HOST; without it,
    only careful is measured and the exit status is 5. Data goes from HOST's memory to this host's.
    Only root can measure, since carefuld serves no other program for a tenth of a second at a time.
    """
    if serve == bool(host):
        raise click.UsageError("give HOST to measure, or --serve to answer another host")
    if host is None:
        tcp.serve(port)
    route, effect = here.find(host)
    with ExitStack() as stack:
        session = stack.enter_context(Session([route]))
        layers: dict[str, Callable[[rounds.Kind], Layer]] = {
            "careful": lambda kind: session.layer(kind.message, kind.nbytes)
        }

        def over_tcp(kind: rounds.Kind) -> Layer:
            nbytes = 0 if kind.message == "request" else kind.nbytes
            made = tcp.SocketLayer(route.address, port, _TCP_CAPACITY, reply_bytes=nbytes)
            return stack.enter_context(made)

        notes = [
            f"{effect.driver}, XDP {effect.xdp_mode}, "
            f"{'zero-copy' if effect.zerocopy else 'copy'}, Linux {effect.kernel}"
        ]
        try:
            over_tcp(rounds.REQUEST)
            layers["TCP"] = over_tcp
        except CarefulError as error:
            notes.append(
                f"TCP: not measured ({error.reason}): run `carefulctl speed --serve` on {host}"
            )
            say_folded(notes[-1], err=True)  # now, not after half a minute
        rows, count = rounds.measure(layers, seconds)
    figures = {**effect.as_dict(), "rounds_count": count, "rows": report.speed_figures(rows)}
    text = report.table(rows, host, seconds, notes)
    show(figures, text, address=str(route.address), **environment())
    if plot_path:
        report.draw(rows, host, plot_path)
    if len(layers) == 1:
        raise click.exceptions.Exit(Exit.WITHHELD)


@command(
    examples=[
        ("carefulctl ping h2", "once a second, until Ctrl-C"),
        ("carefulctl ping h2 -c 100 -i 10ms -s 1KiB", "a hundred of 1 KiB, a hundred a second"),
    ],
    topics=("path",),
)
@click.argument("host", shell_complete=complete.host)
@option("-c --count N", click.IntRange(1), "Stop after N.")
@option("-i --interval", SECONDS, "Between two.", "1s")
@option("-s --size SIZE", BYTES, "Bytes to send.", 64)
@shared
def ping(host: str, count: int | None, interval: float, size: int, here: Local) -> None:
    """Show round trips to HOST through careful, as ping shows those of ICMP.

    Each is a message of one frame and its empty answer; careful must be up on both ends.
    """
    route, _ = here.find(host)
    as_json = is_json()
    times: list[float] = []
    lost: CarefulError | None = None
    sent, began = 0, time.monotonic()
    with ProbeSession(route) as session:
        if size > session.payload_max_bytes:
            text = f"{size} bytes: a frame to {host} carries {session.payload_max_bytes} at most"
            raise InputError(f"{text} (-s)")
        if not as_json:
            say_folded(f"PING {host} ({route.address}) {size} bytes, through careful")
        try:
            while count is None or sent < count:
                if sent:
                    time.sleep(interval)
                sent += 1
                restarts = session.restarts
                (trip,) = session.round_trips(size, 1)
                if session.restarts != restarts and not as_json:
                    say_folded(f"{host}: its careful restarted; connected again")
                times.append(trip.round_us)
                if not as_json:
                    say_folded(
                        f"{size} bytes from {host}: seq={sent} time={shown_time(trip.round_us)}"
                    )
        except KeyboardInterrupt:
            sent = len(times)
        except CarefulError as error:
            lost = error
    took_ms = 1e3 * (time.monotonic() - began)
    found = {
        "min_us": min(times, default=None),
        "avg_us": statistics.fmean(times) if times else None,
        "max_us": max(times, default=None),
        "mdev_us": statistics.pstdev(times) if times else None,
    }
    text = f"\n--- {host} careful ping statistics ---\n{sent} sent, {len(times)} received, "
    text += f"{1 - len(times) / max(sent, 1):.0%} lost, time {took_ms:.0f} ms"
    if times:
        unit, length = time_unit(max(times))
        digits = 1 if unit == "µs" else 3
        known = (one / length for one in found.values() if one is not None)
        values = "/".join(f"{one:.{digits}f}" for one in known)
        text += f"\nrtt min/avg/max/mdev = {values} {unit}"
    figures = {"sent_count": sent, "received_count": len(times), **found, "round_trips_us": times}
    if lost is None or not as_json:
        show(figures, text, address=str(route.address))
    if lost is not None:
        raise lost

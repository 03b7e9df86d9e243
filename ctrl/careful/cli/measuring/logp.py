"""`carefulctl measure logp`: the overheads of the endpoints themselves."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from careful.cli import complete
from careful.cli.command import command, flag, option
from careful.cli.common import plot_option, show
from careful.cli.exit_status import Exit
from careful.cli.local import Local, measured
from careful.cli.params import BYTES, SECONDS, SHARE
from careful.daemon.route import Route
from careful.measure.endpoints import bulk as transfers
from careful.measure.endpoints import contention
from careful.measure.endpoints.background import Background
from careful.measure.endpoints.bulk import Bulk
from careful.measure.endpoints.logp import Layer, LogP, Options, Result
from careful.measure.probes import tcp
from careful.measure.probes.bursts import Session
from careful.measure.probes.files import FilesLayer
from careful.render.measuring import logp as report
from careful.render.measuring import logp_bulk, logp_plots
from careful.render.measuring.measure import environment


@command(
    examples=[
        ("carefulctl measure logp h2", "os, or, g and L"),
        ("carefulctl measure logp h2 --bulk --plot logp.png", "several sizes too, drawn"),
        ("carefulctl measure logp h2 --tcp 9000 --udp 9000", "TCP and UDP; h2 runs `echo 9000`"),
    ]
)
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...", shell_complete=complete.host)
@option(
    "--precision",
    SHARE,
    "Stop when half of each interval is at most this share of its figure.",
    0.05,
)
@option("--time seconds", SECONDS, "Begin no batch of a signature after this long.", "20s")
@option("--max-messages N", int, "Length of the longest burst.", 4096)
@flag("--bulk", "Also stores and gets of several sizes: os(n), or(n), g(n), L(n), T(n), BW(n).")
@option("--max-bytes", BYTES, "Largest bulk transfer.", 16384)
@option("--sizes N", int, "How many sizes of bulk transfers.", 8)
@option(
    "--tcp tcp_port PORT",
    click.IntRange(1, 65535),
    "Also TCP; run `carefulctl measure echo PORT` on HOST.",
)
@option("--udp udp_port PORT", click.IntRange(1, 65535), "Also UDP; the same `echo` answers it.")
@option(
    "--file file_path PATH", str, "Also reads of a file that HOST exports, like those of a program."
)
@option(
    "--gap-for gap_s",
    SECONDS,
    "Measure only the gap: send for this long without a pause, on K hosts at once.",
)
@flag(
    "--background",
    "Use at most 1 % of the path's time, so the measurement takes 100 times as long. If "
    "--time is too short, the command reports the time it needs at once.",
)
@plot_option
@measured
def logp(
    hosts: tuple[str, ...],
    precision: float,
    seconds: float,
    max_messages: int,
    bulk: bool,
    max_bytes: int,
    sizes: int,
    tcp_port: int | None,
    udp_port: int | None,
    file_path: str | None,
    gap_s: float | None,
    background: bool,
    plot_path: Path | None,
    here: Local,
) -> None:
    """Measure os, or, g and L of careful's messages to HOST; to several, in turn.

    This host's carefuld issues bursts of M requests with a computation of D after each, like a
    program that owns the queue; careful must be up on both ends. While carefuld issues, for a tenth
    of a second at a time, it only moves frames. Bursts fill the path on purpose; with --background,
    for 1 % of the time. The exit status is 5 if a figure is withheld.
    """
    if gap_s is not None:
        given = {"--bulk": bulk, "--tcp": tcp_port, "--udp": udp_port, "--file": file_path}
        _refuse_with_gap(given | {"--background": background, "--plot": plot_path})
    options = Options(precision=precision, seconds=seconds, messages_max=max_messages)
    sizes_bytes = transfers.sizes_to(max_bytes, sizes) if bulk else []
    found = [here.find(host) for host in hosts]
    route, effect = found[0]
    routes = [one for one, _ in found]
    inputs = {
        "addresses": [str(one.address) for one in routes],
        **vars(options),
        "bulk_sizes_bytes": sizes_bytes,
        **environment(),
    }
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(Session(routes))
        name = session.host
        if gap_s is not None:
            layer = session.layer()
            flood = contention.flood(layer, gap_s)
            figures = effect.as_dict()
            figures |= logp_bulk.flood_figures(flood, layer.name, layer.capacity)
            show(figures, logp_bulk.flood_text(flood, layer.name, name), **inputs)
            return
        ports = {"TCP": tcp_port, "UDP": udp_port}
        layers = _layers(stack, session, route, ports, file_path)
        results, bulks = _measured(session, layers, options, sizes_bytes, background)
    figures = {**effect.as_dict(), **report.logp_figures(results["careful"])}
    figures["bulk"] = [logp_bulk.bulk_figures(one) for one in bulks]
    for kind in ("tcp", "udp", "file"):
        figures[kind] = report.logp_figures(results[kind]) if kind in results else None
    found_all = list(results.values())
    show(figures, _text(found_all, bulks, name), **inputs)
    if plot_path:
        logp_plots.draw(found_all, bulks, name, plot_path)
    if any(
        one.estimate is None and one.reason for one in report.named(results["careful"]).values()
    ):
        raise click.exceptions.Exit(Exit.WITHHELD)


def _layers(
    stack: contextlib.ExitStack,
    session: Session,
    route: Route,
    ports: dict[str, int | None],
    file_path: str | None,
) -> dict[str, Layer]:
    """Returns layers by name; connects first, so that a closed port costs no measurement."""
    layers: dict[str, Layer] = {"careful": session.layer()}
    for kind, port in ports.items():
        if port is not None:
            beside = tcp.SocketLayer(route.address, port, session.layer().capacity, kind)
            layers[kind.lower()] = stack.enter_context(beside)
    if file_path is not None:
        layers["file"] = stack.enter_context(FilesLayer(file_path, route))
    return layers


def _measured(
    session: Session,
    layers: dict[str, Layer],
    options: Options,
    sizes_bytes: list[int],
    background: bool,
) -> tuple[dict[str, Result], list[Bulk]]:
    def paced(layer: Layer, seconds: float) -> Layer:
        return Background(layer, seconds) if background else layer

    def transfer(kind: str, size: int) -> Layer:
        return paced(session.layer(kind, size), options.seconds / len(sizes_bytes))

    results = {
        name: LogP(paced(layer, options.seconds), options).run() for name, layer in layers.items()
    }
    bulks = [
        transfers.measure(kind, transfer, sizes_bytes, options, results["careful"].rtt)
        for kind in ("store", "get")
        if sizes_bytes
    ]
    return results, bulks


def _refuse_with_gap(others: dict[str, object]) -> None:
    given = [name for name, value in others.items() if value]
    if given:
        raise click.UsageError(
            f"--gap-for measures only the gap: it cannot be combined with {', '.join(given)}"
        )


def _text(results: list[Result], bulks: list[Bulk], host: str) -> str:
    texts = [report.logp_text(one, host) for one in results]
    return "\n\n".join(texts + [logp_bulk.bulk_text(one) for one in bulks])


@command(examples=[("carefulctl measure echo 9000", "answer until Ctrl-C")])
@click.argument("port", type=click.IntRange(1, 65535))
def echo(port: int) -> None:
    """Answer requests over TCP and UDP on PORT until Ctrl-C.

    For `measure logp --tcp PORT --udp PORT` elsewhere.
    """
    tcp.serve(port)

"""`carefulctl measure logp`: what the endpoints themselves take."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from careful.cli import complete
from careful.cli.command import command
from careful.cli.common import measured, plot_option, show
from careful.cli.params import BYTES, SECONDS, SHARE
from careful.control import config, remote
from careful.measure.estimators import bulk as transfers
from careful.measure.estimators import contention
from careful.measure.estimators.logp import Layer, LogP, Options, Result
from careful.measure.probes import tcp
from careful.measure.probes.bursts import Session, Target
from careful.report import logp as report
from careful.report import logp_bulk, logp_plots
from careful.report.measure import environment


@command(
    examples=[
        ("carefulctl measure logp h2", "os, or, g and L"),
        ("carefulctl measure logp h2 --bulk --plot logp.png", "several sizes too, drawn"),
        ("carefulctl measure logp h2 --tcp 9000", "TCP too; h2 runs `echo 9000`"),
    ],
)
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...", shell_complete=complete.host)
@click.option(
    "--precision",
    type=SHARE,
    default=0.05,
    show_default=True,
    help="Enough: half of the interval, as a share of the figure.",
)
@click.option(
    "--time",
    "seconds",
    type=SECONDS,
    default=20.0,
    metavar="TIME",
    help="Begin no batch of a signature after this long.  [default: 20s]",
)
@click.option(
    "--max-messages",
    default=4096,
    show_default=True,
    metavar="N",
    help="Length of the longest burst.",
)
@click.option(
    "--bulk",
    is_flag=True,
    help="Also stores and gets of several sizes: os(n), or(n), g(n), L(n), T(n), BW(n).",
)
@click.option(
    "--max-bytes", type=BYTES, default=16384, show_default=True, help="Largest bulk transfer."
)
@click.option(
    "--sizes", default=8, show_default=True, metavar="N", help="How many sizes of bulk transfers."
)
@click.option(
    "--tcp",
    "tcp_port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Also TCP; run `carefulctl measure echo PORT` on HOST.",
)
@click.option(
    "--gap-for",
    "gap_s",
    type=SECONDS,
    metavar="TIME",
    help="Measure only the gap, sending for so long without a pause, on K hosts at once.",
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
    gap_s: float | None,
    plot_path: Path | None,
    instance: str | None,
    config_path: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure os, or, g and L of careful's messages to HOST; to several, in turn.

    Our carefuld issues bursts of M requests with a computation of D after each, as a program
    that owns the queue would; careful must be up on both ends. While it issues, a tenth of a
    second at a time, it does nothing else but move frames. Bursts fill the path on purpose, so
    there is no --background.
    """
    if gap_s is not None:
        _refuse_with_gap({"--bulk": bulk, "--tcp": tcp_port, "--plot": plot_path})
    options = Options(precision=precision, seconds=seconds, messages_max=max_messages)
    sizes_bytes = transfers.sizes_to(max_bytes, sizes) if bulk else []
    known = config.load(config_path)
    found = [remote.find(host, instance, known, timeout_s=5.0) for host in hosts]
    route, effect = found[0]
    targets = [Target(one.address, host) for (one, _), host in zip(found, hosts, strict=True)]
    inputs = {
        "hosts": list(hosts),
        "addresses": [str(target.address) for target in targets],
        **asdict(options),
        "bulk_sizes_bytes": sizes_bytes,
        "tcp_port": tcp_port,
        "gap_for_s": gap_s,
        **environment(),
    }
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(Session(route.socket, route.instance, targets))
        name = session.host
        if gap_s is not None:
            layer = session.layer()
            flood = contention.flood(layer, gap_s)
            figures = logp_bulk.flood_figures(flood, layer.name, layer.capacity)
            text = logp_bulk.flood_text(flood, layer.name, name)
            show(
                as_json,
                "measure logp",
                inputs,
                {**effect.as_dict(), **figures},
                text,
                output=output,
            )
            return
        layers: list[Layer] = [session.layer()]
        if tcp_port is not None:  # connected first: a closed port costs no signature
            beside = tcp.TcpLayer(targets[0].address, tcp_port, session.layer().capacity)
            layers.append(stack.enter_context(beside))
        results = [LogP(layer, options).run() for layer in layers]
        bulks = [
            transfers.measure(kind, session.layer, sizes_bytes, options, results[0].rtt)
            for kind in ("store", "get")
            if bulk
        ]
    figures = {**effect.as_dict(), **report.figures(results[0])}
    figures["bulk"] = [logp_bulk.bulk_figures(one) for one in bulks]
    figures["tcp"] = report.figures(results[1]) if len(results) > 1 else None
    show(as_json, "measure logp", inputs, figures, _text(results, bulks, name), output=output)
    if plot_path:
        logp_plots.draw(results, bulks, name, plot_path)


def _refuse_with_gap(others: dict[str, Any]) -> None:
    """--gap-for measures nothing else."""
    given = [name for name, value in others.items() if value]
    if given:
        raise click.UsageError(f"--gap-for measures the gap alone: not with {', '.join(given)}")


def _text(results: list[Result], bulks: list[Any], host: str) -> str:
    texts = [report.text(one, host) for one in results]
    return "\n\n".join(texts + [logp_bulk.bulk_text(one) for one in bulks])


@command(examples=[("carefulctl measure echo 9000", "answer until Ctrl-C")])
@click.argument("port", type=click.IntRange(1, 65535))
def echo(port: int) -> None:
    """Answer TCP requests on PORT until Ctrl-C, for `measure logp --tcp PORT` elsewhere."""
    tcp.serve(port)

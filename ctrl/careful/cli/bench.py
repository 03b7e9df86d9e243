"""`carefulctl bench`: P2's experiments on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from careful.bench import rounds
from careful.bench.experiments import TABLES
from careful.bench.ground import OwnHosts
from careful.cli.command import command
from careful.cli.common import json_option, show
from careful.cli.params import OUTPUT, SECONDS
from careful.report import bench as report
from careful.report.measure import environment

#: --quick: one round, of runs as long as this part of what they are.
_QUICK = 0.1


def _progress() -> Callable[[str], None]:
    """One line that changes, where standard error is a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda text: click.echo(f"\r\x1b[K{text}", err=True, nl=False)


@command(
    examples=[
        ("carefulctl bench", "all tables; takes minutes"),
        ("carefulctl bench --quick --table latency", "a glance at one"),
        ("carefulctl bench --keep p2.json", "keep every value"),
    ],
    topics=("benchmarks", "protocols", "events"),
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    type=click.Choice(list(TABLES)),
    help="Only this table; may be repeated.  [default: all]",
)
@click.option(
    "--nodes",
    "nodes_max",
    type=click.Choice(["2", "4", "8"]),
    default="8",
    show_default=True,
    help="Most nodes: 2, 4 and 8 as far as this.",
)
@click.option(
    "--rounds",
    "rounds_count",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    metavar="N",
    help="How often each protocol runs everything.",
)
@click.option("--quick", is_flag=True, help="One round of short runs: seconds, and rough figures.")
@click.option(
    "--limit",
    "limit_s",
    type=SECONDS,
    default=20.0,
    metavar="TIME",
    help="A run that takes longer is given up, and has no value.  [default: 20s]",
)
@click.option(
    "--mtu",
    type=click.IntRange(1280, 9000),
    default=9000,
    show_default=True,
    help="Of the hosts' links, bytes.",
)
@click.option(
    "-o",
    "--output",
    "--keep",
    "output",
    type=OUTPUT,
    metavar="FILE",
    help="Write the JSON object, with every value, to a file too.",
)
@json_option
def bench(
    tables: tuple[str, ...],
    nodes_max: str,
    rounds_count: int,
    quick: bool,
    limit_s: float,
    mtu: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run P2's experiments over careful and over the traditional protocol, side by side.

    Messages around a ring, along a chain, and from all to all, on hosts that it makes on this
    machine from network namespaces, and that are gone at its end. In each round the protocols
    take turns. Needs root.
    """
    plan = rounds.Plan(
        tuple(name for name in TABLES if name in tables) or tuple(TABLES),
        tuple(nodes for nodes in (2, 4, 8) if nodes <= int(nodes_max)),
        1 if quick else rounds_count,
        _QUICK if quick else 1.0,
        limit_s,
    )
    tell = _progress()
    tell("making hosts")
    try:
        with OwnHosts(plan.nodes[-1], mtu) as ground:
            found = rounds.run(plan, ground.hosts, "", tell)
    finally:
        tell("")
    inputs = {**asdict(plan), "mtu_bytes": mtu, "cpus": os.cpu_count(), **environment()}
    notes = [f"{plan.rounds} x P values each, MTU {mtu}, {os.cpu_count()} CPUs"]
    show(as_json, "bench", inputs, report.figures(found), report.text(found, notes), output=output)

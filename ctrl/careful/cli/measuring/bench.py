"""`carefulctl bench`: P2's experiments on this machine."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from careful.bench import rounds
from careful.bench.experiments import TABLES
from careful.bench.namespaces import Host, NamespaceHosts
from careful.bench.nodes import PROGRAM
from careful.cli import complete
from careful.cli.command import command, flag, option
from careful.cli.common import config_option, json_option, plot_option, show
from careful.cli.params import OUTPUT, SECONDS
from careful.control.options import config
from careful.errors import InputError
from careful.jsonout import document, write
from careful.render.measuring import bench as report
from careful.render.measuring import bench_plots
from careful.render.measuring.measure import environment

#: --quick: one round, with runs shortened to this part.
_QUICK = 0.1


def _progress() -> Callable[[str], None]:
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda text: click.echo(f"\r\x1b[K{text}", err=True, nl=False)


@command(
    examples=[
        ("carefulctl bench", "all tables; takes minutes"),
        ("carefulctl bench --quick --table latency", "a glance at one"),
        ("carefulctl bench -o kept.json", "keep every value"),
        ("carefulctl bench --from kept.json --plot kept.png", "draw what was kept"),
        ("carefulctl bench h1 h2 --on 'ssh {}'", "on real hosts"),
    ],
    topics=("benchmarks", "protocols", "events"),
)
@click.argument("names", nargs=-1, metavar="[HOST]...", shell_complete=complete.host)
@option("--on on COMMAND", str, "Command that starts a program on HOST; {} stands for HOST.")
@option(
    "--interface IFACE",
    str,
    "Interface for careful on each HOST; careful must not be up on it.",
    "eth1",
)
@option(
    "--table tables",
    click.Choice(list(TABLES)),
    "Only this table; may be repeated.  [default: all]",
    multiple=True,
)
@option(
    "--nodes nodes_max",
    click.Choice(["2", "4", "8"]),
    "Run with 1, 2, 4 and 8 nodes, up to this number.",
    "8",
)
@option(
    "--rounds rounds_count N",
    click.IntRange(1, 1000),
    "Rounds; each protocol runs everything once a round.",
    5,
)
@flag("--quick", "One round of short runs: seconds, and rough figures.")
@option("--timeout limit_s", SECONDS, "A longer run is stopped, and has no value.", "20s")
@option(
    "--mtu",
    click.IntRange(1280, 9000),
    "MTU of the links between the hosts that it makes, in bytes.",
    9000,
)
@option("-o --output FILE", OUTPUT, "Also write the JSON object, with every value, to FILE.")
@option(
    "--from kept FILE",
    click.Path(exists=True, dir_okay=False, path_type=Path),
    "Run nothing; show the results in FILE.",
)
@plot_option
@config_option
@json_option
def bench(
    names: tuple[str, ...],
    on: str | None,
    interface: str,
    tables: tuple[str, ...],
    nodes_max: str,
    rounds_count: int,
    quick: bool,
    limit_s: float,
    mtu: int,
    output: Path | None,
    kept: Path | None,
    plot_path: Path | None,
    config_path: Path | None,
) -> None:
    """Run P2's experiments over careful and over the traditional protocol, side by side.

    The experiments send messages around a ring, along a chain, and from all to all, and compute a
    Jacobi iteration. The protocols take turns in each round. Without HOST the command makes hosts
    from network namespaces on this machine, removes them at the end, and needs root. With HOST,
    each host is a node that --on starts, and must have this version of careful. The simulator runs
    the same experiments in virtual time: `build/gcc/test_sim_p2 tables` (`carefulctl help
    protocols`).
    """
    if bool(names) != bool(on) or len(names) == 1:
        raise click.UsageError("name two HOSTs or more, and how to start a node on them (--on)")
    if kept:
        inputs, found = _read(kept)
    else:
        plan = rounds.Plan(
            tuple(name for name in TABLES if name in tables) or tuple(TABLES),
            tuple(nodes for nodes in (1, 2, 4, 8) if nodes <= min(int(nodes_max), len(names) or 8)),
            1 if quick else rounds_count,
            _QUICK if quick else 1.0,
            limit_s,
        )
        hosts = _hosts(names, on or "", interface, config.load(config_path))
        inputs = {**asdict(plan), "hosts": list(names), "on": on, "mtu_bytes": mtu}
        inputs |= {"cpus": os.cpu_count(), **environment()}
        found = _run(plan, hosts, mtu)
    text = report.bench_text(found, inputs)
    figures = report.bench_figures(found)
    show(figures, text, **inputs)
    if output:
        write(output, document("bench", inputs, figures, compact=True) + "\n")
    if plot_path:
        bench_plots.plot(found, plot_path)


def _read(kept: Path) -> tuple[dict[str, object], rounds.Results]:
    try:
        whole = json.loads(kept.read_text(encoding="utf-8"))
        return dict(whole["inputs"]), report.read(whole)
    except (ValueError, KeyError, TypeError) as error:
        text = f"{kept}: not a file that `carefulctl bench --output` wrote: {error}"
        raise InputError(text) from None


def _hosts(names: Sequence[str], on: str, interface: str, settings: config.Config) -> list[Host]:
    try:
        starts = [tuple(shlex.split(on.replace("{}", shlex.quote(name)))) for name in names]
    except ValueError as error:
        raise click.UsageError(f"--on {on!r}: {error}") from None
    return [
        Host(start, settings.resolve(name).ip, interface, PROGRAM)
        for name, start in zip(names, starts, strict=True)
    ]


def _run(plan: rounds.Plan, hosts: Sequence[Host], mtu: int) -> rounds.Results:
    tell = _progress()
    tell("making hosts")
    try:
        if hosts:
            return rounds.run(plan, hosts, "adaptive", tell)
        with NamespaceHosts(plan.nodes[-1], mtu) as made:
            return rounds.run(plan, made.hosts, "", tell)
    finally:
        tell("")

"""`carefulctl fleet`: the same on all hosts of a file, at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from careful.cli.command import group
from careful.cli.common import json_option, plot_option, say_folded, show
from careful.cli.exit_status import Exit
from careful.cli.instance.fleet_put import hosts_option, put, relay
from careful.cli.params import SECONDS
from careful.fleet import hosts as fleet_hosts
from careful.fleet import matrix, pairs
from careful.fleet.hosts import Host
from careful.fleet.running import Job, Outcome, in_turns, tables
from careful.render.instance import fleet as report
from careful.render.instance import fleet_matrix

_F = TypeVar("_F", bound=Callable[..., object])

_names = click.argument("names", nargs=-1, metavar="[HOST]...")


def _limit(default: str) -> Callable[[_F], _F]:
    return click.option(
        "--limit",
        "limit_s",
        type=SECONDS,
        default=default,
        metavar="TIME",
        help=f"A host that takes longer counts as failed.  [default: {default}]",
    )


@group(
    examples=[
        ("carefulctl fleet up", "on all hosts of fleet.toml"),
        ("carefulctl fleet status", "a line for each"),
        ("carefulctl fleet put image", "the file image to all of them"),
    ],
    topics=("hosts",),
)
def fleet() -> None:
    """Do the same on all hosts of a file, at once.

    The file names the hosts, and how carefulctl is started on each (`carefulctl help hosts`). A
    host that fails is named; the others go on.
    """


def _finish(
    name: str,
    path: Path,
    asked: dict[str, object],
    outcomes: Sequence[Outcome],
    text: str,
    as_json: bool,
    figures: dict[str, object] | None = None,
) -> None:
    """Prints the outcome and sets the exit status; failed hosts were named as they failed."""
    inputs = {"hosts_file": str(path), **asked}
    show(as_json, f"fleet {name}", inputs, report.figures(outcomes) | (figures or {}), text)
    if failed := sum(1 for one in outcomes if one.error):
        sys.stdout.flush()
        raise click.exceptions.Exit(Exit.FAILED if failed == len(outcomes) else Exit.PARTLY)


def _name_failed(outcome: Outcome) -> None:
    if outcome.error:
        say_folded(f"carefulctl: {report.failed(outcome)}", err=True)


def _instance(status: Outcome) -> tuple[str, ...]:
    for one in tables(status.figures.get("instances")):
        if isinstance(name := one.get("instance"), str):
            return "--instance", name
    return ()


def _pairs(
    hosts: Sequence[Host], words: Callable[[Host, Host], tuple[str, ...]], limit_s: float
) -> list[list[Job]]:
    if len(hosts) < 2:
        raise click.UsageError("a pair needs two hosts")
    return [
        [Job(local, words(local, remote), limit_s, remote.name) for local, remote in turn]
        for turn in pairs.turns(hosts)
    ]


def _each(
    hosts: Sequence[Host], words: Callable[[Host], tuple[str, ...]], limit_s: float
) -> list[Outcome]:
    return in_turns([[Job(one, words(one), limit_s) for one in hosts]], _name_failed)


@fleet.command("up", examples=[("carefulctl fleet up", "with the words `up` of each host")])
@_names
@hosts_option
@_limit("60s")
@json_option
def up(names: tuple[str, ...], path: Path, limit_s: float, as_json: bool) -> None:
    """Bring up careful on each host's interface, with the options that the file has in `up`."""
    chosen = fleet_hosts.chosen(fleet_hosts.read(path), names)
    found = _each(chosen, lambda one: ("up", one.interface, *one.up), limit_s)
    text = report.brief(found, "up")
    _finish("up", path, {"names": names, "limit_s": limit_s}, found, text, as_json)


@fleet.command("down", examples=[("carefulctl fleet down h3", "on one of them")])
@_names
@hosts_option
@_limit("60s")
@json_option
def down(names: tuple[str, ...], path: Path, limit_s: float, as_json: bool) -> None:
    """Take careful off each host's interface."""
    chosen = fleet_hosts.chosen(fleet_hosts.read(path), names)
    found = _each(chosen, lambda one: ("down", one.interface), limit_s)
    text = report.brief(found, "down")
    _finish("down", path, {"names": names, "limit_s": limit_s}, found, text, as_json)


@fleet.command(
    "status", examples=[("carefulctl fleet status --json", "all that each host says of itself")]
)
@_names
@hosts_option
@_limit("30s")
@json_option
def status(names: tuple[str, ...], path: Path, limit_s: float, as_json: bool) -> None:
    """Show a line for each host: what is in effect, its peers, and what was lost.

    A host on which careful is not up counts as failed.
    """
    chosen = fleet_hosts.chosen(fleet_hosts.read(path), names)
    found = _each(chosen, lambda one: ("status", one.interface), limit_s)
    text = report.status(found)
    _finish("status", path, {"names": names, "limit_s": limit_s}, found, text, as_json)


@fleet.command("tune", examples=[("carefulctl fleet tune", "every host for every other, once")])
@_names
@hosts_option
@_limit("5m")
@json_option
def tune(names: tuple[str, ...], path: Path, limit_s: float, as_json: bool) -> None:
    """Measure and tune every pair of hosts once, as `tune auto --once` does.

    A host takes part in one pair at a time, so that no measurement disturbs another. --limit
    applies to one pair. To tune continuously, use `up --tune auto`.
    """
    chosen = fleet_hosts.chosen(fleet_hosts.read(path), names)
    turns = _pairs(
        chosen,
        lambda here, there: ("tune", "auto", here.interface, "--once", "--peer", there.address),
        limit_s,
    )
    found = in_turns(turns, _name_failed)
    text = report.tuned(found)
    _finish("tune", path, {"names": names, "limit_s": limit_s}, found, text, as_json)


@fleet.command(
    "measure",
    examples=[
        ("carefulctl fleet measure", "every pair, both ways"),
        ("carefulctl fleet measure --time 10s --plot pairs.png", "take longer, and draw it"),
    ],
    topics=("hosts", "measuring"),
)
@_names
@hosts_option
@click.option(
    "--time",
    "seconds",
    type=SECONDS,
    default="5s",
    metavar="TIME",
    help="How long to measure a pair.  [default: 5s]",
)
@_limit("60s")
@plot_option
@json_option
def measure(
    names: tuple[str, ...],
    path: Path,
    seconds: float,
    limit_s: float,
    plot_path: Path | None,
    as_json: bool,
) -> None:
    """Measure all pairs of hosts: latency, G and lost frames, and which pair is odd.

    Careful must be up on all of them. The command runs `measure blackbox` for each pair; a host
    takes part in one pair at a time. A figure is odd if it is 3.5 median absolute deviations off
    the median of all pairs, and again when the pair is measured a second time. A loss is always
    odd.
    """
    chosen = fleet_hosts.chosen(fleet_hosts.read(path), names)
    limit = limit_s + seconds

    def looked() -> list[Outcome]:
        return in_turns([[Job(one, ("status", one.interface), limit_s) for one in chosen]])

    before = looked()
    named = {one.host: _instance(one) for one in before}
    turns = _pairs(
        chosen,
        lambda here, there: (
            *("measure", "blackbox", there.address, *named[here.name]),
            *("--time", f"{seconds}s", "--sizes", "8"),
        ),
        limit,
    )
    found = in_turns(turns, _name_failed)
    again = matrix.doubtful(matrix.matrix_of(chosen, found, before, before))
    twice = in_turns([[job for job in turn if job.pair in again] for turn in turns])
    second = {one.job.pair: one for one in twice}
    found = [matrix.joined(one, second.get(one.job.pair, one)) for one in found]
    pairs_found = matrix.matrix_of(chosen, found, before, looked())
    asked = {"names": names, "seconds": seconds, "limit_s": limit_s}
    text = fleet_matrix.text(pairs_found)
    if plot_path:
        fleet_matrix.draw(pairs_found, plot_path)
    figures = fleet_matrix.figures(pairs_found) | {"measured_twice": sorted(second)}
    _finish("measure", path, asked, found, text, as_json, figures)


fleet.add_command(put)
fleet.add_command(relay)

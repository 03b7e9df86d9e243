"""`carefulctl fleet`: the same on all hosts of a file, at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

import click

from careful.cli.command import group, option
from careful.cli.common import json_option, plot_option, say_folded, show
from careful.cli.exit_status import Exit
from careful.cli.instance.fleet_put import hosts_option, put, relay
from careful.cli.params import SECONDS
from careful.fleet import hosts as fleet_hosts
from careful.fleet import matrix, pairs
from careful.fleet.hosts import Host
from careful.fleet.running import Job, Outcome, in_turns, tables
from careful.render.instance import fleet as report
from careful.render.instance.fleet_matrix import draw_matrix, matrix_figures, matrix_text

#: The outcomes of a command, its text, and figures beyond the outcomes.
_Found = tuple[list[Outcome], str, dict[str, object]]

_names = click.argument("names", nargs=-1, metavar="[HOST]...")


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


def _command(
    name: str, *examples: tuple[str, str], limit: str = "60s"
) -> Callable[[Callable[..., _Found]], click.Command]:
    """Declares a command of the group. Its function gets the hosts, the limit of each job in
    seconds, and its own options.
    """

    def declare(function: Callable[..., _Found]) -> click.Command:
        @wraps(function)
        def call(names: tuple[str, ...], hosts_file: Path, limit_s: float, **own: object) -> None:
            hosts = fleet_hosts.chosen(fleet_hosts.read(hosts_file), names)
            outcomes, text, figures = function(hosts, limit_s, **own)
            show(report.outcome_figures(outcomes) | figures, text)
            if failed := sum(1 for one in outcomes if one.error):
                sys.stdout.flush()
                raise click.exceptions.Exit(Exit.FAILED if failed == len(outcomes) else Exit.PARTLY)

        limited = option(
            "--timeout limit_s", SECONDS, "A host that takes longer counts as failed.", limit
        )
        made = _names(hosts_option(limited(json_option(call))))
        return fleet.command(name, examples=examples, topics=("hosts",))(made)

    return declare


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


@_command("up", ("carefulctl fleet up", "with the words `up` of each host"))
def up(hosts: list[Host], limit_s: float) -> _Found:
    """Bring up careful on each host's interface, with the options that the file has in `up`."""
    found = _each(hosts, lambda one: ("up", one.interface, *one.up), limit_s)
    return found, report.brief(found, "up"), {}


@_command("down", ("carefulctl fleet down h3", "on one of them"))
def down(hosts: list[Host], limit_s: float) -> _Found:
    """Take careful off each host's interface."""
    found = _each(hosts, lambda one: ("down", one.interface), limit_s)
    return found, report.brief(found, "down"), {}


@_command(
    "status", ("carefulctl fleet status --json", "all that each host says of itself"), limit="30s"
)
def status(hosts: list[Host], limit_s: float) -> _Found:
    """Show a line for each host: what is in effect, its peers, and what was lost.

    A host on which careful is not up counts as failed.
    """
    found = _each(hosts, lambda one: ("status", one.interface), limit_s)
    return found, report.status(found), {}


@_command("tune", ("carefulctl fleet tune", "every host for every other, once"), limit="5m")
def tune(hosts: list[Host], limit_s: float) -> _Found:
    """Measure and tune every pair of hosts once, as `tune auto --once` does.

    A host takes part in one pair at a time, so that no measurement disturbs another. --timeout
    applies to one pair. To tune continuously, use `up --tune auto`.
    """
    turns = _pairs(
        hosts,
        lambda here, there: ("tune", "auto", here.interface, "--once", "--peer", there.address),
        limit_s,
    )
    found = in_turns(turns, _name_failed)
    return found, report.tuned(found), {}


@_command(
    "measure",
    ("carefulctl fleet measure", "every pair, both ways"),
    ("carefulctl fleet measure --time 10s --plot pairs.png", "take longer, and draw it"),
)
@option("--time seconds", SECONDS, "How long to measure a pair.", "5s")
@plot_option
def measure(hosts: list[Host], limit_s: float, seconds: float, plot_path: Path | None) -> _Found:
    """Measure all pairs of hosts: latency, G and lost frames, and which pair is odd.

    Careful must be up on all of them. The command runs `measure blackbox` for each pair; a host
    takes part in one pair at a time. A figure is odd if it is 3.5 median absolute deviations off
    the median of all pairs, and again when the pair is measured a second time. A loss is always
    odd.
    """

    def looked() -> list[Outcome]:
        return in_turns([[Job(one, ("status", one.interface), limit_s) for one in hosts]])

    before = looked()
    named = {one.host: _instance(one) for one in before}
    turns = _pairs(
        hosts,
        lambda here, there: (
            *("measure", "blackbox", there.address, *named[here.name]),
            *("--time", f"{seconds}s", "--sizes", "8"),
        ),
        limit_s + seconds,
    )
    found = in_turns(turns, _name_failed)
    again = matrix.doubtful(matrix.matrix_of(hosts, found, before, before))
    twice = in_turns([[job for job in turn if job.pair in again] for turn in turns])
    second = {one.job.pair: one for one in twice}
    found = [matrix.joined(one, second.get(one.job.pair, one)) for one in found]
    pairs_found = matrix.matrix_of(hosts, found, before, looked())
    if plot_path:
        draw_matrix(pairs_found, plot_path)
    figures = matrix_figures(pairs_found) | {"measured_twice": sorted(second)}
    return found, matrix_text(pairs_found), figures


fleet.add_command(put)
fleet.add_command(relay)

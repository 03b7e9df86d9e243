"""`carefulctl fleet put`: a file to all hosts; and each host's part of it."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import click

from careful import cancelled
from careful.cli.command import command, flag, option
from careful.cli.common import json_option, say_folded, show
from careful.cli.exit_status import Exit
from careful.cli.local import Local, local
from careful.cli.params import SECONDS
from careful.control.instance import choice
from careful.control.instance import status as state
from careful.control.options import config
from careful.errors import CarefulError
from careful.fleet import chain
from careful.fleet import hosts as fleet_hosts
from careful.fleet import relay as one_host
from careful.render.instance import fleet as report

hosts_option = option(
    "--hosts hosts_file FILE",
    click.Path(path_type=Path),
    "The file of hosts.",
    Path("fleet.toml"),
    envvar="CAREFUL_FLEET",
    show_envvar=True,
)


@command(
    "put",
    examples=[
        ("carefulctl fleet put image", "to all hosts; repeat it to resume"),
        ("carefulctl fleet put --to h2,h3 image", "to two of them"),
    ],
    topics=("hosts", "files"),
)
@click.argument("file", type=click.Path(path_type=Path))
@option("--to HOST[,HOST]...", str, "Hosts to send to; this host is left out.", "all")
@flag("-f --force", "Replace a file of its name that differs.")
@hosts_option
@option("--timeout limit_s", SECONDS, "Fail if nothing moves for this long.", "60s")
@json_option
def put(file: Path, to: str, force: bool, hosts_file: Path, limit_s: float) -> None:
    """Put FILE on all hosts, by a pipeline through them.

    Each host passes on every block as soon as it has it, so the last host has the file only a
    little later than the first. Careful must be up on this host and on all of them, and each must
    export one directory with :rw. The file appears there when it is complete and its digests are
    right. The model of the chain and the time of a first block determine the block size. The same
    command resumes, and leaves out hosts that do not answer.
    """
    names = () if to == "all" else tuple(to.split(","))
    settings = config.load(None)
    chosen = fleet_hosts.chosen(fleet_hosts.read(hosts_file), names)
    hosts = [one for one in chosen if not chain.is_here(settings.resolve(one.address).ip)]
    if not hosts:
        raise click.UsageError("no host to send to: only this host is named")

    def print_member(one: chain.Member) -> None:
        if one.error:
            say_folded(f"carefulctl: {report.member(one)}", err=True)

    found = cancelled.run(chain.Put(file, limit_s, force, print_member).run(hosts))
    show(report.put_figures(found), report.put(found))
    if failed := sum(1 for one in found.members if one.error):
        raise click.exceptions.Exit(Exit.FAILED if failed == len(hosts) else Exit.PARTLY)


@command(
    "relay",
    hidden=True,
    examples=[("carefulctl fleet relay eth1", "what `fleet put` starts on each host")],
    topics=("hosts",),
)
@click.argument("ifname", metavar="IFACE")
@local
def relay(ifname: str, here: Local) -> None:
    """Do this host's part of `fleet put`, which standard input describes."""
    (one,) = choice.named_or_all(ifname, here.instance)
    exports = state.gather(one, here.settings).exports
    if len(exports) != 1 or not exports[0].writable:
        text = "must export exactly one directory with :rw, for the file"
        raise CarefulError(errno.EROFS, text, ifname)
    asyncio.run(one_host.serve(Path(exports[0].path), here.config_path, here.instance))

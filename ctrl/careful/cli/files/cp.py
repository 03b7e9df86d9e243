"""`carefulctl cp`: a file from one host to another, or on one host."""

from __future__ import annotations

from pathlib import PurePath

import click

from careful.address import is_remote
from careful.cli.common import is_json, say, show
from careful.cli.complete import remote_path
from careful.cli.files.transfer import given_to_get, options_like_get
from careful.cli.files.transfer_options import TransferCommand, options_of
from careful.cli.params import host_path
from careful.cli.running import run
from careful.control.instance import remote
from careful.control.options import config
from careful.render.files import transfer as shown
from careful.render.files.watching import watch
from careful.transfer.protocol.block import BlockClient
from careful.transfer.result import Result
from careful.transfer.run.session import connected
from careful.transfer.stream import relay

#: Options of get that this command has, too.
_TAKEN = ("force", "preserve")
#: Help of options that mean something else in this command.
_HELP = {
    "force": "Replace an existing file.",
    "preserve": "Keep the mode and the time.",
    "rate_limit": "At most N bytes per second, between two hosts.",
}


@click.command(
    cls=TransferCommand,
    params=options_like_get(_TAKEN, _HELP),
    examples=[
        ("carefulctl cp h2:big h3:", "from h2 to h3, through this host"),
        ("carefulctl cp h2:big h2:copy", "h2 copies it itself"),
    ],
    topics=("files", "exit-status"),
)
@click.argument("source", metavar="HOST:PATH", shell_complete=remote_path)
@click.argument("target", metavar="HOST:PATH", shell_complete=remote_path)
def cp(source: str, target: str, **given: object) -> None:
    """Copy a file from one host to another, or on one host.

    On one host, the host copies the file itself, and compares digests of both files. Between two
    hosts the bytes pass through this host, which keeps none of them; each block's digest is checked
    at both. The target's export needs :rw. An existing file is replaced only with -f. A copy
    appears under its name when it is complete and synced; an interrupted copy leaves nothing, and
    starts over. Directories are not copied: `get -r` and `put -r` do that.
    """
    for one, command in ((source, "put"), (target, "get")):
        if not is_remote(one):
            raise click.UsageError(f"{one} is local: use `carefulctl {command} {source} {target}`")
    (host, path), (other, place) = host_path(source), host_path(target)
    options = given_to_get(given)
    settings = config.load(options["config_path"])
    how = options_of(options, False, settings)
    find = (options["instance"], settings, options["timeout_s"])
    (route, effect), (to, _) = (remote.find(name, *find) for name in (host, other))
    as_json, quiet = is_json(), options["quiet"]
    names = (lambda name: say(name, err=as_json)) if options["verbose"] else None
    name = PurePath(path).name or host

    fd = options["progress_fd"]
    with watch(not quiet and not as_json, names, fd, host=host, name=name) as progress:

        async def work(peer: BlockClient) -> Result:
            if (route.socket, route.address) == (to.socket, to.address):
                return await relay.copy(peer, peer, (path, place), how, progress)
            async with connected(to) as target_peer:
                return await relay.copy(peer, target_peer, (path, place), how, progress)

        report = run(route, work)
    if as_json or not quiet:
        text = shown.rehearsal(report) if how.dry_run else shown.summary(report)
        figures = {**effect.as_dict(), **shown.transfer_figures(report)} if as_json else {}
        show(figures, text)

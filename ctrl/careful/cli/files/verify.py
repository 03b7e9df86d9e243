"""`carefulctl verify` and `partials`: compares files, and clears away partial ones."""

from __future__ import annotations

import click

from careful.address import is_remote
from careful.cli.command import Group, command, flag
from careful.cli.common import show
from careful.cli.complete import remote_path
from careful.cli.exit_status import Exit
from careful.cli.files.transfer_options import timeout
from careful.cli.local import Local, shared
from careful.cli.params import host_path
from careful.cli.running import run
from careful.render.files import verify as report
from careful.transfer.file.find_partials import find_local, find_remote
from careful.transfer.run.verify import verify as compare

#: Bytes that one digest of `verify` covers.
_BLOCK_BYTES = 1 << 20


@command(
    examples=[
        ("carefulctl verify h2:big big", "one file"),
        ("carefulctl verify -r h2:project project", "a tree; status 3 if it differs"),
    ],
    topics=("files", "exit-status"),
)
@click.argument("source", metavar="HOST:PATH", shell_complete=remote_path)
@click.argument("target", metavar="LOCAL")
@flag("-r --recursive", "Compare directories too.")
@timeout
@shared
def verify(source: str, target: str, recursive: bool, timeout_s: float, here: Local) -> None:
    """Compare a host's file or tree with LOCAL; only digests (XXH3) cross the network.

    Names, sizes and contents are compared; with a block device, as many bytes as the file has.
    Every difference is listed.
    """
    if is_remote(target) and not is_remote(source):
        source, target = target, source
    host, path = host_path(source)
    route, effect = here.find(host, timeout_s)
    found = run(route, lambda peer: compare(peer, path, target, recursive, _BLOCK_BYTES))
    figures = {**effect.as_dict(), **report.verified_figures(found)}
    show(figures, report.verified(found), source=source, target=target)
    if found.differences:
        raise click.exceptions.Exit(Exit.PARTLY)


class Listing(Group):
    """A group with `list` as default: `partials DIR` is `partials list DIR`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts `list`, unless the words name a command or ask for help."""
        known = {*self.commands, *self.get_help_option_names(ctx)}
        return super().parse_args(ctx, args if args and args[0] in known else ["list", *args])


@click.group(
    cls=Listing,
    examples=[
        ("carefulctl partials", "what is left below this directory"),
        ("carefulctl partials h2:", "what is left in what h2 exports"),
        ("carefulctl partials prune h2:", "remove that"),
    ],
    topics=("files",),
)
def partials() -> None:
    """List or remove what interrupted transfers left, here or on a host."""


_where = click.argument(
    "where", metavar="[DIRECTORY | HOST:[PATH]]", default=".", shell_complete=remote_path
)


def _partials(where: str, clean: bool, timeout_s: float, here: Local) -> None:
    figures = {}
    if is_remote(where):
        host, path = host_path(where)
        route, effect = here.find(host, timeout_s)
        found = run(route, lambda peer: find_remote(peer, path, clean))
        figures = effect.as_dict()
    else:
        found = find_local(where, clean)
    figures["partials"] = [report.partial_figures(one) for one in found]
    show(figures, report.partials(found))
    if any(one.is_failure for one in found):
        raise click.exceptions.Exit(Exit.PARTLY)


@partials.command(
    "list", examples=[("carefulctl partials list h2:dir", "what is left in a directory of h2")]
)
@_where
@timeout
@shared
def partials_list(where: str, timeout_s: float, here: Local) -> None:
    """List what interrupted transfers left; `partials DIRECTORY` does the same."""
    _partials(where, False, timeout_s, here)


@partials.command(
    "prune", examples=[("carefulctl partials prune .", "remove what is left below this directory")]
)
@_where
@timeout
@shared
def partials_prune(where: str, timeout_s: float, here: Local) -> None:
    """Remove partial files that no transfer uses, and list the result for each."""
    _partials(where, True, timeout_s, here)

"""`carefulctl sync`: get and put with the options that a cron job needs."""

from __future__ import annotations

import click

from careful.address import is_remote
from careful.cli.complete import remote_path
from careful.cli.files.transfer import given_to_get, move, options_like_get
from careful.cli.files.transfer_options import TransferCommand
from careful.cli.params import host_path
from careful.transfer.stream.local_end import NULL, STDIO

#: Options of get and put that this command has, too.
_TAKEN = (
    *("archive", "recursive", "include", "exclude", "exclude_from", "update", "checksum"),
    *("delete", "max_delete", "outlast_s"),
)
#: Help of options that mean something else in this command.
_HELP = {
    "archive": "Always on.",
    "recursive": "Always on.",
    "update": "Leave files alone that are newer at TARGET. The exit status is then 3.",
    "checksum": "Compare the contents of all files, not only of those whose sizes or times differ.",
    "delete": "Delete what SOURCE does not have.",
}


@click.command(
    cls=TransferCommand,
    params=options_like_get(_TAKEN, _HELP),
    examples=[
        ("carefulctl sync h2:project .", "fetch what has changed"),
        ("carefulctl sync --delete data/ h2:backup", "send what has changed, remove what is gone"),
        ("carefulctl sync -n --delete data/ h2:backup", "say what that would do"),
    ],
    topics=("resume", "files", "exit-status"),
)
@click.argument("source", shell_complete=remote_path)
@click.argument("target", shell_complete=remote_path)
def sync(source: str, target: str, **given: object) -> None:
    """Bring TARGET up to date with SOURCE; one of them is HOST:PATH.

    Trees are copied with all attributes and links. A file that has the same size and time at
    both ends is left alone. Any other file is compared, and the blocks that differ are replaced,
    even if the file is newer at TARGET; -u leaves such files alone. Without --delete nothing is
    removed but files whose names are directories in SOURCE, as by rsync -a. If there is nothing to
    do, nothing is printed, so that cron sends no mail. SOURCE is copied under its name; SOURCE/
    copies its contents. The exit status is 3 if anything was left different.
    """
    if is_remote(source) == is_remote(target):
        raise click.UsageError("one of SOURCE and TARGET must be HOST:PATH, the other local")
    options = given_to_get(given) | {"by_time": not given["checksum"], "checksum": True}
    options |= {"archive": True, "restart_changed": True}
    fetch = is_remote(source)
    host, path = host_path(source if fetch else target)
    if {STDIO, NULL} & {path, source, target}:
        raise click.UsageError("sync copies only files and trees: use get or put for - and null:")
    ends = (host, [path], target) if fetch else (host, [source], path)
    move(fetch, ends, options, sync=True)

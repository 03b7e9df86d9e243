"""`carefulctl sync`: get and put with the options that a job of cron's wants."""

from __future__ import annotations

from typing import Any

import click

from careful.address import is_remote
from careful.cli.complete import remote_path
from careful.cli.params import host_path
from careful.cli.transfer import get, move
from careful.cli.transfer_options import TransferCommand

#: Options of get and put that are options of this command, too.
_TAKEN = (
    "include",
    "exclude",
    "exclude_from",
    "mkpath",
    "dry_run",
    "force",
    "checksum",
    "delete",
    "fsync",
    "on_loss",
    "rate_limit",
    "verbose",
    "quiet",
    "progress_fd",
    "timeout_s",
    "instance",
    "config_path",
    "as_json",
)


@click.command(
    cls=TransferCommand,
    params=[one for one in get.params if one.name in _TAKEN],
    examples=[
        ("carefulctl sync h2:project .", "fetch what has changed"),
        ("carefulctl sync --delete data/ h2:backup", "send what has changed, remove what is gone"),
        ("carefulctl sync -n --delete data/ h2:backup", "say what that would do"),
    ],
    topics=("files", "exit-status"),
)
@click.argument("source", shell_complete=remote_path)
@click.argument("target", shell_complete=remote_path)
def sync(source: str, target: str, **given: Any) -> None:
    """Bring TARGET up to date with SOURCE; one of them is HOST:PATH.

    It does what get or put does with -a and -u: files with SOURCE's size and time stay, the rest
    comes with all attributes. What is newer at TARGET stays and is counted; -f replaces it.
    Without --delete nothing is removed. If there is nothing to do it prints nothing, as cron
    wants it. SOURCE is copied under its name, SOURCE/ is what it holds. -c compares contents
    instead of times.
    """
    if is_remote(source) == is_remote(target):
        raise click.UsageError("one of SOURCE and TARGET is HOST:PATH, the other is here")
    ctx = click.get_current_context()
    options = get.make_context("get", ["h2:"], parent=ctx).params | given  # its defaults
    options |= {"archive": True, "update": not given["checksum"]}
    fetch = is_remote(source)
    host, path = host_path(source if fetch else target)
    ends = (host, [path], target) if fetch else (host, [source], path)
    move(fetch, ends, {"source": source, "target": target}, options, idle=given["dry_run"])

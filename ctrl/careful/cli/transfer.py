"""`carefulctl ls`, `get` and `put`: the files that peers export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from careful.address import is_remote, split_remote
from careful.cli.common import shared, show
from careful.cli.params import BYTES
from careful.control import config, remote
from careful.report import live
from careful.report.progress import watch
from careful.transfer import session
from careful.transfer.files import Options
from careful.transfer.pace import RateLimit
from careful.transfer.trees import Report

#: Exit status where some files were transferred and others were not.
PARTIAL = 3

_timeout = click.option(
    "--timeout-s",
    type=click.FloatRange(min=0.001),
    default=5.0,
    show_default=True,
    help="How long to wait for the host to answer.",
)


def _transfer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("-r", "--recursive", is_flag=True, help="Directories, too."),
        click.option("-f", "--force", is_flag=True, help="Replace files that exist."),
        click.option(
            "--block-bytes",
            type=BYTES,
            default=4 << 20,
            metavar="N",
            help="Payload of one operation, 4KiB to 1GiB  [default: 4MiB].",
        ),
        click.option(
            "--blocks",
            type=click.IntRange(1, 64),
            default=8,
            show_default=True,
            help="Blocks of a file in flight.",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(1, 32),
            default=16,
            show_default=True,
            help="Files in flight.",
        ),
        click.option(
            "--rate-limit",
            type=BYTES,
            metavar="N",
            help="Most bytes a second, all files together.",
        ),
        click.option("--no-digest", is_flag=True, help="No XXH3 over each block."),
        click.option("--no-sync", is_flag=True, help="No fsync before a file gets its name."),
        click.option(
            "--restart",
            is_flag=True,
            help="Begin again, rather than go on where an interrupted transfer ended.",
        ),
        click.option("-q", "--quiet", is_flag=True, help="No bar and no summary."),
        _timeout,
        shared,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _options(given: dict[str, Any]) -> Options:
    if not 4096 <= given["block_bytes"] <= 1 << 30:
        raise click.UsageError("--block-bytes: from 4KiB to 1GiB")
    if given["rate_limit"] is not None and given["rate_limit"] < 1:
        raise click.UsageError("--rate-limit: at least 1")
    return Options(
        block_bytes=given["block_bytes"],
        blocks_in_flight=given["blocks"],
        files_in_flight=given["jobs"],
        replace=given["force"],
        digest=not given["no_digest"],
        sync=not given["no_sync"],
        limit=RateLimit(given["rate_limit"]) if given["rate_limit"] else None,
        restart=given["restart"],
    )


def _finish(names: dict[str, Any], figures: dict[str, Any], report: Report) -> None:
    """Print what happened; exit 1 if all failed, 3 if some did."""
    ctx = click.get_current_context()
    given = ctx.params
    skipped = ("sources", "target", "words", "as_json", "quiet", "config_path")
    inputs = names | {key: value for key, value in given.items() if key not in skipped}
    whole = {**figures, **live.transfer_figures(report)}
    if given["as_json"] or not given["quiet"]:
        show(given["as_json"], str(ctx.info_name), inputs, whole, live.summary(report))
    if report.failures:
        ctx.exit(PARTIAL if report.files else 1)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="HOST:PATH... [LOCAL]")
@_transfer_options
def get(
    words: tuple[str, ...],
    instance: str | None,
    config_path: Path | None,
    recursive: bool,
    quiet: bool,
    as_json: bool,
    timeout_s: float,
    **given: Any,
) -> None:
    """Fetch files that a host exports into LOCAL (default: here).

    A file appears under its name when it is complete, checked and synced; an existing one
    is replaced with -f alone. Symlinks and special files are skipped and named.
    Exit status 3: some files failed, each named on standard error.
    """
    *sources, target = words if len(words) > 1 and not is_remote(words[-1]) else (*words, ".")
    parts = [split_remote(source) for source in sources]
    if len({host for host, _ in parts}) > 1:
        raise click.UsageError("all sources must be on one host")
    options = _options(given)
    settings = config.load(config_path)
    route, effect = remote.find(parts[0][0], instance, settings, timeout_s)
    paths = [path for _, path in parts]
    with watch(not quiet and not as_json) as progress:
        report = session.get(route, paths, target, recursive, options, progress)
    _finish({"sources": sources, "target": target}, effect.as_dict(), report)


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="LOCAL...")
@click.argument("target", metavar="HOST:PATH")
@_transfer_options
def put(
    sources: tuple[str, ...],
    target: str,
    instance: str | None,
    config_path: Path | None,
    recursive: bool,
    quiet: bool,
    as_json: bool,
    timeout_s: float,
    **given: Any,
) -> None:
    """Send files to a host that exports a directory with :rw.

    A file appears there under its name when it is complete, checked and synced; an existing
    one is replaced with -f alone. Symlinks and special files are skipped and named.
    Exit status 3: some files failed, each named on standard error.
    """
    host, path = split_remote(target)
    options = _options(given)
    settings = config.load(config_path)
    route, effect = remote.find(host, instance, settings, timeout_s)
    with watch(not quiet and not as_json) as progress:
        report = session.put(route, list(sources), path, recursive, options, progress)
    _finish({"sources": sources, "target": target}, effect.as_dict(), report)


@click.command()
@click.argument("target", metavar="HOST:[PATH]")
@click.option("-l", "--long", "long", is_flag=True, help="Mode, size and time, too.")
@click.option("-R", "--recursive", is_flag=True, help="The whole tree.")
@_timeout
@shared
def ls(
    target: str,
    long: bool,
    recursive: bool,
    timeout_s: float,
    instance: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """List what a host exports."""
    host, path = split_remote(target)
    settings = config.load(config_path)
    route, effect = remote.find(host, instance, settings, timeout_s)
    entries = session.listing(route, path, recursive)
    inputs = {"target": target, "recursive": recursive, "instance": instance}
    figures = {**effect.as_dict(), "entries": [live.entry(one) for one in entries]}
    show(as_json, "ls", inputs, figures, live.listing(entries, long))

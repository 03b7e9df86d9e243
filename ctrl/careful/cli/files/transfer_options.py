"""The options of `get` and `put`, and their conversion to `Options` and `Span`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from careful.cli.command import Command, Given, Option
from careful.cli.common import shared
from careful.cli.params import BYTES, SECONDS, duration
from careful.control.options import config
from careful.control.state.mounts import Mounts
from careful.transfer.filters import Filters, read_patterns, rules
from careful.transfer.options import Options
from careful.transfer.pace import RateLimit
from careful.transfer.stream.local_end import Span

_F = TypeVar("_F", bound=Callable[..., object])
#: The type of click.option().
_Decorator = Callable[[Any], Any]

timeout = click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default="5s",
    help="How long to wait for the host to answer, and how long it may then be silent. A host that"
    " reports that it still works on the request gets 12 times as long, or 60 times if the "
    "work grows with the file.",
)


_outlast = click.option(
    "--outlast",
    "outlast_s",
    type=duration(zero=True),
    default="60s",
    envvar="CAREFUL_OUTLAST",
    show_envvar=True,
    help="If carefuld ends at either end, how long to wait until it is up again; 0s: not at all. "
    "A session that comes back without progress counts as waiting.",
)


def _is_open(_: click.Context, __: click.Parameter, fd: int | None) -> int | None:
    """Checks that a descriptor is open: else a file that we open could get its number."""
    try:
        if fd is not None:
            os.fstat(fd)
    except (OSError, OverflowError):
        raise click.BadParameter(f"{fd} is not an open file descriptor") from None
    return fd


#: Options of patterns: their order on the command line counts.
_PATTERNS = ("include", "exclude", "exclude_from")


_READ_ONCE = "careful.cli.files.transfer_options.read_once"


def _text(name: str) -> str:
    """Reads a file, or standard input for "-"; bytes that are not UTF-8 become surrogates."""
    if name == "-":
        raw, is_file = sys.stdin.buffer.read(), False
    else:
        with Path(name).open("rb") as file:
            raw, is_file = file.read(), stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    if not is_file and (context := click.get_current_context(silent=True)):
        context.meta[_READ_ONCE] = True
    return raw.decode("utf-8", "surrogateescape")


def reads_again() -> bool:
    """Reports whether the command can run again: no option was read from a pipe."""
    return not click.get_current_context().meta.get(_READ_ONCE)


class TransferCommand(Command):
    """A command with the options of _PATTERNS."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Merges the options of _PATTERNS, in order, into `patterns`: (includes, pattern)."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        left = super().parse_args(ctx, args)
        values = {name: iter(ctx.params.pop(name, ())) for name in _PATTERNS}
        patterns: list[tuple[bool, str]] = []
        for name in (param.name for param in order if param.name in values):
            value = next(values[name])
            listed = name == "exclude_from"
            patterns += read_patterns(_text(value)) if listed else [(name == "include", value)]
        ctx.params["patterns"] = tuple(patterns)
        return left


def _below(heading: str) -> partial[_Decorator]:
    return partial(click.option, cls=Option, heading=heading)


_what = _below("What to copy")
_replaced = _below("Existing files")
_kept = _below("Attributes")
_checks = _below("Checks and syncing")
_pace = _below("Speed")
_output = _below("Output")

_OPTIONS: list[_Decorator] = [
    _what("-r", "--recursive", is_flag=True, help="Copy directories. Keeps times."),
    _what(
        "--include",
        multiple=True,
        metavar="PATTERN",
        help="Copy matching names, even if a later --exclude matches.",
    ),
    _what(
        "--exclude",
        multiple=True,
        metavar="PATTERN",
        help="Leave out matching names: '*.o', 'cache/' (directories), '/top', 'a/**/b', "
        "'[[:digit:]]*'.",
    ),
    _what(
        "--exclude-from",
        multiple=True,
        metavar="FILE",
        help="Read patterns to leave out, one per line ('+ ' in front: include; '#': comment); "
        "'-' is standard input.",
    ),
    _what(
        "--files-from",
        metavar="FILE",
        help="With -r, copy only these names, one per line, relative to the source; '-' is "
        "standard input.",
    ),
    _what("-0", "--null", "nul", is_flag=True, help="Names in --files-from end with NUL."),
    _what(
        "--offset", type=BYTES, metavar="N", help="Start at byte N of the file; single file only."
    ),
    _what(
        "--bytes",
        "nbytes",
        type=BYTES,
        metavar="N",
        help="Copy N bytes of the file; single file only.",
    ),
    _what("--mkpath", is_flag=True, help="Create missing directories above the target."),
    _what("-n", "--dry-run", is_flag=True, help="Change nothing; show what would be done."),
    _replaced(
        "-f", "--force", is_flag=True, help="Replace existing files; with -u, newer ones too."
    ),
    _replaced(
        "-u",
        "--update",
        is_flag=True,
        help="Skip files that are newer at the target, or have the same size and time; replace the "
        "others. Keeps times.",
    ),
    _replaced(
        "-c",
        "--checksum",
        is_flag=True,
        help="Compare digests of blocks first, and move only blocks that differ. Replaces files; "
        "changes a device, or with --at a file, in place.",
    ),
    _replaced("--delete", is_flag=True, help="With -r, delete what the source does not have."),
    _replaced(
        "--max-delete",
        type=click.IntRange(min=0),
        metavar="N",
        help="Fail and delete nothing if --delete would delete more than N names.",
    ),
    _replaced(
        "--at",
        type=BYTES,
        metavar="N",
        help="Write into an existing file in place, starting at byte N. Needs -f.",
    ),
    _replaced(
        "--restart", is_flag=True, help="Start over instead of resuming an interrupted transfer."
    ),
    _kept("-p", "--preserve", is_flag=True, help="Keep modes, times and, as root, owners."),
    _kept(
        "-a",
        "--archive",
        is_flag=True,
        help="-r and -p; also keep symlinks, hard links, extended attributes and ACLs.",
    ),
    _kept(
        "-S",
        "--sparse",
        is_flag=True,
        help="Turn zeros into holes, 32 KiB at a time. Holes always stay holes.",
    ),
    _checks(
        "--digest",
        type=click.Choice(["xxh3", "blake3", "none"]),
        default="xxh3",
        help="xxh3: of each block, checked where it was written; blake3: also of each whole file "
        "or stream, computed at both ends and compared.",
    ),
    _checks("--no-digest", is_flag=True, help="The same as --digest none."),
    _checks(
        "--fsync",
        type=click.Choice(["file", "end", "none"]),
        default="file",
        help="file: sync each file before it gets its name; end: sync once, at the end; "
        "none: leave it to the kernel.",
    ),
    _checks("--no-sync", is_flag=True, help="The same as --fsync none."),
    _checks(
        "--on-loss",
        type=click.Choice(config.ON_LOSS),
        help="If a loss ends an epoch (`help promise`): repair requests missing data again, fail "
        "ends the transfer with exit status 4.  [default: on_loss in the configuration, or repair]",
    ),
    _pace(
        "--block-bytes",
        type=BYTES,
        default="4MiB",
        metavar="N",
        help="Size of a block, 4KiB to 1GiB; resuming keeps whole blocks.",
    ),
    _pace(
        "--blocks",
        type=click.IntRange(1, 64),
        default=8,
        metavar="N",
        help="Blocks in flight per file; at most 8 MiB of them, but always two.",
    ),
    _pace("--jobs", type=click.IntRange(1, 30), default=16, metavar="N", help="Files in flight."),
    _pace(
        "--rate-limit",
        type=BYTES,
        metavar="N",
        help="At most N bytes per second, all files together.",
    ),
    _output("-v", "--verbose", is_flag=True, help="Print the name of each file when it is done."),
    _output("-q", "--quiet", is_flag=True, help="Show no progress bar and no summary."),
    _output(
        "--progress-fd",
        type=int,
        callback=_is_open,
        metavar="FD",
        help="Write progress as JSON lines to this file descriptor.",
    ),
]


def transfer_options(command: _F) -> _F:
    """Adds all options, with those that every command has."""
    for option in reversed([*_OPTIONS, timeout, _outlast, shared]):
        command = option(command)
    return command


def _names(given: Given) -> frozenset[str] | None:
    source = given["files_from"]
    if source is None:
        return None
    names = _text(source).split("\0" if given["nul"] else "\n")
    cleaned = (name.removeprefix("./").strip("/") for name in names)
    return frozenset(name for name in cleaned if name not in ("", "."))


def options_of(given: Given, recursive: bool, settings: config.Config) -> Options:
    """Converts the options. Raises click.UsageError if they contradict each other."""
    if not 4096 <= given["block_bytes"] <= 1 << 30:
        raise click.UsageError("--block-bytes: must be from 4KiB to 1GiB")
    if given["rate_limit"] is not None and given["rate_limit"] < 1:
        raise click.UsageError("--rate-limit: must be at least 1")
    if given["digest"] == "blake3" and given["block_bytes"].bit_count() != 1:
        raise click.UsageError("--block-bytes: must be a power of two with --digest blake3")
    archive = given["archive"]
    try:
        patterns = rules(given["patterns"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    for name in ("delete", "files_from"):
        if given[name] and not recursive:
            raise click.UsageError(f"--{name.replace('_', '-')} needs -r")
    if given["max_delete"] is not None and not given["delete"]:
        raise click.UsageError("--max-delete needs --delete")
    if given["delete"] and given["files_from"]:
        raise click.UsageError("--delete cannot be combined with --files-from")
    return Options(
        block_bytes=given["block_bytes"],
        blocks_in_flight=given["blocks"],
        files_in_flight=given["jobs"],
        replace=given["force"] or given["update"] or given["checksum"],
        digest=given["digest"] != "none" and not given["no_digest"],
        blake3=given["digest"] == "blake3",
        fsync="none" if given["no_sync"] else given["fsync"],
        limit=RateLimit(given["rate_limit"]) if given["rate_limit"] else None,
        preserve=given["preserve"] or archive,
        links=archive,
        hard_links=archive,
        xattrs=archive,
        sparse=given["sparse"],
        times=recursive,
        update=bool(given.get("by_time", given["update"] and not given["checksum"])),
        keep_newer=given["update"] and not given["force"],
        make_path=given["mkpath"],
        checksum=given["checksum"],
        delete=given["delete"],
        max_delete=given["max_delete"],
        mounts=Mounts(settings) if recursive else None,
        dry_run=given["dry_run"],
        filters=Filters(patterns, _names(given)),
        restart=given["restart"],
        restart_changed=given.get("restart_changed", False),
        fail_on_loss=(given["on_loss"] or settings.on_loss) == "fail",
        outlasts=bool(given["outlast_s"]),
    )


def span_of(given: Given, sources: int) -> Span:
    """Returns the requested part of a single file.

    Raises click.UsageError if there are several files, or a number is negative.
    """
    span = Span(given["offset"] or 0, given["nbytes"], given["at"])
    if not span.is_whole and sources > 1:
        raise click.UsageError("--offset, --bytes and --at need a single file")
    if min(span.offset, span.nbytes or 0, span.at or 0) < 0:
        raise click.UsageError("--offset, --bytes and --at: must not be negative")
    return span

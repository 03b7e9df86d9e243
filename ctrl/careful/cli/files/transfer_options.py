"""The options of `get` and `put`, and their conversion to `Options` and `Span`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from careful.cli.command import Command, Given, flag, option
from careful.cli.common import config_option, instance_option, json_option
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

timeout = option(
    "--timeout timeout_s",
    SECONDS,
    "How long to wait for the host to answer, and how long it may then be silent. A host that"
    " reports that it still works on the request gets 12 times as long, or 60 times if the "
    "work grows with the file.",
    "5s",
)


_outlast = option(
    "--outlast outlast_s",
    duration(zero=True),
    "If carefuld ends at either end, how long to wait until it is up again; 0s: not at all. "
    "A session that comes back without progress counts as waiting.",
    "60s",
    envvar="CAREFUL_OUTLAST",
    show_envvar=True,
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


#: Heading of the help -> options below it.
_OPTIONS: dict[str, list[_Decorator]] = {
    "What to copy": [
        flag("-r --recursive", "Copy directories. Keeps times."),
        option(
            "--include PATTERN",
            str,
            "Copy matching names, even if a later --exclude matches.",
            multiple=True,
        ),
        option(
            "--exclude PATTERN",
            str,
            "Leave out matching names: '*.o', 'cache/' (directories), '/top', 'a/**/b', "
            "'[[:digit:]]*'.",
            multiple=True,
        ),
        option(
            "--exclude-from FILE",
            str,
            "Read patterns to leave out, one per line ('+ ' in front: include; '#': comment); "
            "'-' is standard input.",
            multiple=True,
        ),
        option(
            "--files-from FILE",
            str,
            "With -r, copy only these names, one per line, relative to the source; '-' is "
            "standard input.",
        ),
        flag("-0 --null nul", "Names in --files-from end with NUL."),
        option("--offset N", BYTES, "Start at byte N of the file; single file only."),
        option("--bytes nbytes N", BYTES, "Copy N bytes of the file; single file only."),
        flag("--mkpath", "Create missing directories above the target."),
        flag("-n --dry-run", "Change nothing; show what would be done."),
    ],
    "Existing files": [
        flag("-f --force", "Replace existing files; with -u, newer ones too."),
        flag(
            "-u --update",
            "Skip files that are newer at the target, or have the same size and time; replace the "
            "others. Keeps times.",
        ),
        flag(
            "-c --checksum",
            "Compare digests of blocks first, and move only blocks that differ. Replaces files; "
            "changes a device, or with --at a file, in place.",
        ),
        flag("--delete", "With -r, delete what the source does not have."),
        option(
            "--max-delete N",
            click.IntRange(min=0),
            "Fail and delete nothing if --delete would delete more than N names.",
        ),
        option(
            "--at N", BYTES, "Write into an existing file in place, starting at byte N. Needs -f."
        ),
        flag("--restart", "Start over instead of resuming an interrupted transfer."),
    ],
    "Attributes": [
        flag("-p --preserve", "Keep modes, times and, as root, owners."),
        flag(
            "-a --archive",
            "-r and -p; also keep symlinks, hard links, extended attributes and ACLs.",
        ),
        flag("-S --sparse", "Turn zeros into holes, 32 KiB at a time. Holes always stay holes."),
    ],
    "Checks and syncing": [
        option(
            "--digest",
            click.Choice(["xxh3", "blake3", "none"]),
            "xxh3: of each block, checked where it was written; blake3: also of each whole file "
            "or stream, computed at both ends and compared.",
            "xxh3",
        ),
        option(
            "--fsync",
            click.Choice(["file", "end", "none"]),
            "file: sync each file before it gets its name; end: sync once, at the end; "
            "none: leave it to the kernel.",
            "file",
        ),
        option(
            "--on-loss",
            click.Choice(config.ON_LOSS),
            "If a loss ends an epoch (`help promise`): repair requests missing data again, fail "
            "ends the transfer with exit status 4.  [default: on_loss in the configuration, or "
            "repair]",
        ),
    ],
    "Speed": [
        option(
            "--block-bytes N",
            BYTES,
            "Size of a block, 4KiB to 1GiB; resuming keeps whole blocks.",
            "4MiB",
        ),
        option(
            "--blocks N",
            click.IntRange(1, 64),
            "Blocks in flight per file; at most 8 MiB of them, but always two.",
            8,
        ),
        option("--jobs N", click.IntRange(1, 30), "Files in flight.", 16),
        option("--rate-limit N", BYTES, "At most N bytes per second, all files together."),
    ],
    "Output": [
        flag("-v --verbose", "Print the name of each file when it is done."),
        flag("-q --quiet", "Show no progress bar and no summary."),
        option(
            "--progress-fd FD",
            int,
            "Write progress as JSON lines to this file descriptor.",
            callback=_is_open,
        ),
    ],
}


_LOCAL: list[_Decorator] = [instance_option, config_option, json_option]


def transfer_options(command: _F) -> _F:
    """Adds all options, with those that every command has."""
    for heading, options in reversed((_OPTIONS | {"": [timeout, _outlast, *_LOCAL]}).items()):
        for one in reversed(options):
            command = one(command)
            command.__click_params__[-1].heading = heading  # type: ignore[attr-defined]
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
        digest=given["digest"] != "none",
        blake3=given["digest"] == "blake3",
        fsync=given["fsync"],
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

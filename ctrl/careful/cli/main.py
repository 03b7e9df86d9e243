"""The top-level command group.

Owns the table of commands, which are imported on first use, and the one place where an error
becomes a line and an exit status (`carefulctl help exit-status`).
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click
from click.shell_completion import shell_complete

from careful.cli.command import LazyGroup, flag
from careful.cli.exit_status import Exit
from careful.errors import (
    CarefulError,
    EndedBySignal,
    InputError,
    LossError,
    WithheldError,
    is_debugging,
    shown,
)
from careful.extras import MissingExtraError
from careful.jsonout import document

#: Heading -> name -> the first sentence of the command's help.
COMMANDS: dict[str, dict[str, str]] = {
    "An interface": {
        "up": "Bring up careful on IFACE: start carefuld, and return once it is ready.",
        "down": "Take careful off IFACE: stop carefuld, and remove everything it left.",
        "key": "Make this host's key, and choose whose keys to trust.",
        "status": "Show whether all is well, the settings in effect, and the rates of each peer.",
        "top": "Show what moves between this host and its peers, until q or Ctrl-C.",
        "fleet": "Do the same on all hosts of a file, at once.",
        "exporter": "Serve metrics to Prometheus over HTTP, until Ctrl-C.",
        "doctor": "Check that everything careful needs on IFACE is there, and try HOST.",
    },
    "Files": {
        "ls": "List what a host exports.",
        "get": "Fetch files from a host into LOCAL (default: the current directory).",
        "put": "Send files to a host that exports a directory with :rw.",
        "cp": "Copy a file from one host to another, or on one host.",
        "sync": "Bring TARGET up to date with SOURCE; one of them is HOST:PATH.",
        "verify": "Compare a host's file or tree with LOCAL; only digests (XXH3) cross the "
        "network.",
        "partials": "List or remove what interrupted transfers left, here or on a host.",
    },
    "Memory": {"memory": "Create, list, fill and read memory that other hosts lend (`up --lend`)."},
    "Measuring and tuning": {
        "ping": "Show round trips to HOST through careful, as ping shows those of ICMP.",
        "speed": "Compare careful with kernel TCP to HOST: a request, a block and a stream, in "
        "turn.",
        "measure": "Measure a path; every figure has a 95 % interval.",
        "capture": "Capture the frames of an interface that careful is up on, until Ctrl-C.",
        "trace": "Trace the stages of messages that flow, by probes in the datapath.",
        "plan": "Compute how a message is best cut into fragments for a pipeline of stages.",
        "simulate": "Send messages through a pipeline in virtual time and see where the time goes.",
        "tune": "See and set how messages are cut into fragments, while they flow.",
        "bench": "Run P2's experiments over careful and over the traditional protocol, side by "
        "side.",
    },
    "More": {
        "config": "Look at the configuration file.",
        "completion": "Print a completion script for bash, zsh or fish.",
        "help": "Show a page of the manual, or the help of a command.",
    },
}
#: Heading -> folder of its commands' modules in careful.cli.
_FOLDERS = {
    "An interface": "instance.",
    "Files": "files.",
    "Memory": "files.",
    "Measuring and tuning": "measuring.",
}
#: Commands that are not NAME:NAME in that folder.
_ELSEWHERE = {
    "down": "instance.up:down",
    "ls": "files.transfer:ls",
    "get": "files.transfer:get",
    "put": "files.transfer:put",
    "partials": "files.verify:partials",
    "ping": "measuring.speed:ping",
    "config": "config:config_group",
    "help": "help:help_command",
}


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    folders=_FOLDERS,
    elsewhere=_ELSEWHERE,
    invoke_without_command=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    examples=[
        ("carefulctl up eth1 --export /srv/data", "serve a directory"),
        ("carefulctl get -r h2:project .", "fetch a tree from another host"),
    ],
    topics=("exit-status", "files"),
)
@flag("-V --version", "Show the version, and what it speaks and has.")
@flag("--json as_json", "Print one JSON object; before or after COMMAND.")
@click.pass_context
def cli(ctx: click.Context, version: bool, as_json: bool) -> None:
    """Bring up careful on an interface, move files, and tune it while it runs."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if version:
        _show_version(as_json)
        ctx.exit()
    if as_json:
        raise click.UsageError("--json needs a command, or --version", ctx)
    if ctx.invoked_subcommand is None:
        raise click.UsageError("missing command", ctx)


def _show_version(as_json: bool) -> None:
    from careful.cli.common import say
    from careful.render.version import shown as text
    from careful.versions import versions

    found = versions()
    say(document("version", {}, found) if as_json else text(found))


def _line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, CarefulError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return shown(" ".join(text.split()))


#: Error -> exit status; others are FAILED.
_STATUSES = {WithheldError: Exit.WITHHELD, LossError: Exit.LOST}


def _failed(error: Exception | EndedBySignal, asked: dict[str, object]) -> int:
    """Prints an error, as JSON too if requested; returns the exit status.

    An error that no input or host explains is a fault of carefulctl itself: its traceback is shown.
    """
    if isinstance(error, EndedBySignal):
        return _printed(str(error), Exit.SIGNALLED + error.signal_number, asked)
    is_fault = not isinstance(error, OSError | InputError | MissingExtraError)
    if is_fault or is_debugging():
        traceback.print_exc()
    if is_fault:
        text = f"a fault in carefulctl, please report it: {type(error).__name__}: {_line(error)}"
        return _printed(text, Exit.BROKEN, asked)
    if isinstance(error, BrokenPipeError) and not isinstance(error, CarefulError):
        return Exit.FAILED  # the reader of our output is gone
    statuses = (status for kind, status in _STATUSES.items() if isinstance(error, kind))
    return _printed(_line(error), next(statuses, Exit.FAILED), asked)


def _misused(error: click.ClickException) -> str:
    """Returns a line that says what is wrong with a command line, and where its help is."""
    from careful.cli import hints  # not for commands that succeed

    hint = hints.option(error) if isinstance(error, click.NoSuchOption) else ""
    text = hint or shown(error.format_message().rstrip("."))
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"{text} (see `{ctx.command_path} --help`)" if ctx else text


def _printed(text: str, status: int, asked: dict[str, object]) -> int:
    from careful.render.tables import folded  # not for commands that succeed

    with suppress(OSError):  # nowhere to print
        click.echo(folded(f"carefulctl: {text}", err=True), err=True)
        if "json" in asked:
            figures = {"error": text, "exit_status": status}
            click.echo(document(str(asked["json"]), {}, figures))
    return status


def _json_last(words: list[str]) -> list[str]:
    """Moves a --json that comes before the command behind its arguments."""
    if words[:1] != ["--json"] or len(words) < 2 or words[1].startswith("-"):
        return words
    end = words.index("--") if "--" in words else len(words)
    return [*words[1:end], "--json", *words[end:]]


def run(argv: Sequence[str] | None = None) -> int:
    """Runs `carefulctl`; prints an error on standard error; returns the exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    status = _run(words)
    if status in (Exit.FAILED, Exit.PARTLY):
        from careful.cli import hints  # not for commands that succeed
        from careful.render.tables import folded

        if text := hints.path(words):  # words that the user may have meant
            with suppress(OSError):
                click.echo(folded(f"carefulctl: {shown(text)}", err=True), err=True)
    return status


def _run(given: list[str]) -> int:
    if instruction := os.environ.get("_CAREFULCTL_COMPLETE"):
        return shell_complete(cli, {}, "carefulctl", "_CAREFULCTL_COMPLETE", instruction)
    asked: dict[str, object] = {}
    words = _json_last(given)
    try:
        with cli.make_context("carefulctl", words, obj=asked) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2; Debian 12 has 8.1
            error.show()
            return error.exit_code
        if "--json" in words:  # the option's callback does not run if the command line is wrong
            wrong = error.ctx if isinstance(error, click.UsageError) else None
            asked.setdefault("json", wrong.command_path.partition(" ")[2] if wrong else words[0])
        return _printed(_misused(error), error.exit_code, asked)
    except (click.Abort, KeyboardInterrupt):
        return _printed("interrupted", Exit.SIGNALLED + signal.SIGINT, asked)
    except (Exception, EndedBySignal) as error:
        return _failed(error, asked)
    return Exit.DONE


def finish(status: int) -> NoReturn:
    """Flushes the output and exits."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone, or the file is closed
            stream.flush()
    # At once: the interpreter's cleanup is slow, and the kernel frees everything anyway.
    os._exit(status)

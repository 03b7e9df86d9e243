"""The top-level command group.

Owns the table of subcommands, loaded on first use so that `carefulctl --help`
imports neither numpy nor bcc, and the one place where an error becomes a line
and an exit status. The subcommands own their options; no logic lives here.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from careful import __version__
from careful.cli import interrupt
from careful.errors import CarefulError, Ended, LossError, shown

#: Exit status where a loss ended a transfer.
LOST = 4
#: Subcommand name -> "module:attribute" of its click command.
COMMANDS: dict[str, str] = {
    "doctor": "careful.cli.status:doctor",
    "down": "careful.cli.up:down",
    "get": "careful.cli.transfer:get",
    "ls": "careful.cli.transfer:ls",
    "measure": "careful.cli.measure:measure",
    "partials": "careful.cli.files:partials",
    "plan": "careful.cli.plan:plan",
    "put": "careful.cli.transfer:put",
    "simulate": "careful.cli.simulate:simulate",
    "status": "careful.cli.status:status",
    "trace": "careful.cli.trace:trace",
    "tune": "careful.cli.tune:tune",
    "up": "careful.cli.up:up",
    "verify": "careful.cli.files:verify",
}


class LazyGroup(click.Group):
    """A click group whose subcommands are imported when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        interrupt.disarm()
        return command


_HELP = """Bring careful up on an interface, move files, and tune it while it runs.

\b
carefulctl up eth1 --export /srv/data:rw
carefulctl get -r h2:project .

\b
Exit status: 0 done; 1 it failed (one line says what and what to do); 2 usage;
3 some files were transferred and others were not, or differ; 4 the network
lost a frame (--on-loss fail); 130 interrupted, 143 and 129 ended by SIGTERM
and SIGHUP.

Completion: eval "$(_CAREFULCTL_COMPLETE=bash_source carefulctl)", likewise
zsh_source, and fish_source for fish.
"""


@click.group(cls=LazyGroup, help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="carefulctl")
def cli() -> None:
    """Run the subcommand."""


def _line(error: OSError | ValueError) -> str:
    """What an error says, on one line."""
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, CarefulError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return shown(" ".join(text.split()))


def run(argv: Sequence[str] | None = None) -> int:
    """Run `carefulctl`; its exit status, an error told on standard error."""
    try:
        status = cli.main(argv, prog_name="carefulctl", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("carefulctl: interrupted", err=True)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain about it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError) as error:
        click.echo(f"carefulctl: {_line(error)}", err=True)
        return LOST if isinstance(error, LossError) else 1
    except Ended as error:
        click.echo(f"carefulctl: {error}", err=True)
        return 128 + error.signal_number
    return status if isinstance(status, int) else 0


def finish(status: int) -> NoReturn:
    """Exit with a status, once all that was said is out."""
    for stream in (sys.stdout, sys.stderr):  # None where we began without
        with suppress(OSError, ValueError, AttributeError):  # who read it has gone, or closed it
            stream.flush()
    # At once: the interpreter would take apart bit by bit what the kernel frees anyway.
    os._exit(status)

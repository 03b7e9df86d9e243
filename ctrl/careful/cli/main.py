"""The top-level command group.

Owns the table of subcommands, loaded on first use so that `carefulctl --help`
imports neither numpy nor bcc, and the one place where an error becomes a line
and an exit status. The subcommands own their options; no logic lives here.
"""

from __future__ import annotations

import importlib
import sys

import click

from careful import __version__

#: Subcommand name -> "module:attribute" of its click command.
COMMANDS: dict[str, str] = {
    "plan": "careful.cli.plan:plan",
    "simulate": "careful.cli.simulate:simulate",
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
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="carefulctl")
def cli() -> None:
    """Bring careful up on an interface, move files, and tune it while it runs."""


def main() -> None:
    """Run `carefulctl`; exit 0, 1 (it failed: one line on stderr) or 2 (usage)."""
    try:
        cli(prog_name="carefulctl")
    except (OSError, ValueError) as error:
        click.echo(f"carefulctl: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""What the commands of carefulctl are made of: help under headings, with examples at its end.

Owns how help is laid out, for terminals and for manual pages alike. Calls click alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from careful.cli import interrupt

if TYPE_CHECKING:
    ParamType = click.ParamType
else:

    class ParamType(click.ParamType):
        """click's, whose values have a type for mypy since 8.2; Debian 12 has 8.1."""

        def __class_getitem__(cls, _: object) -> type:
            return cls


#: Width of an example in a list before what it does begins on a line of its own.
_EXAMPLE_COLUMNS = 46


#: The options of a command as click gives them, by their names, or as it takes them.
Given = dict[str, Any]
_Decorator = Callable[[Callable[..., object]], "Command"]


class Option(click.Option):
    """An option under a heading of its command's help.

    Args:
        heading: where it stands; "" for the last one, Options.
    """

    def __init__(self, names: Sequence[str], heading: str = "", **given: Any) -> None:
        super().__init__(names, **given)
        self.heading = heading


class _Help(click.Command):
    """Options under headings, then examples, then where more is written.

    Args:
        examples: command lines and what each does.
        topics: of `carefulctl help` that say more.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[tuple[str, str]] = (),
        topics: Sequence[str] = (),
        **given: Any,
    ) -> None:
        super().__init__(*args, **given)
        self.examples = tuple(examples)
        self.topics = tuple(topics)

    def headings(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """What stands below each heading: options and what they do, in their order."""
        found: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = None
            if not isinstance(param, click.Argument):
                record = param.get_help_record(ctx)
            if record is not None:
                found.setdefault(getattr(param, "heading", ""), []).append(record)
        rest = found.pop("", [])
        return found | ({"Options": rest} if rest else {})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each heading with its options; what a group adds, and the examples."""
        for heading, records in self.headings(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write_dl(self.examples, col_max=_EXAMPLE_COLUMNS)
        if self.topics:
            formatter.write_paragraph()
            pages = ", ".join(f"carefulctl help {topic}" for topic in self.topics)
            formatter.write_text(f"More: {pages}")


class Command(_Help):
    """A command."""


class Group(_Help, click.Group):
    """A group of commands; a summary of theirs is never cut."""

    command_class = Command

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Commands and their summaries, under headings; those that are hidden aside."""
        names = self.list_commands(ctx)
        found = [(name, self.get_command(ctx, name)) for name in names]
        shown = [(name, summary(one)) for name, one in found if one and not one.hidden]
        return {"Commands": shown}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write them, each summary whole."""
        for heading, rows in self.sections(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class LazyGroup(Group):
    """A group whose commands are imported when they are named.

    Args:
        table: heading -> name -> ("module:attribute" of a command, its summary).
    """

    def __init__(
        self, *args: Any, table: Mapping[str, Mapping[str, tuple[str, str]]], **given: Any
    ) -> None:
        super().__init__(*args, **given)
        self._table = table
        self._targets = {
            name: target for rows in table.values() for name, (target, _) in rows.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._targets.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        interrupt.disarm()
        return command

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """As the table has them: nothing is imported to list what there is."""
        return {
            heading: [(name, text) for name, (_, text) in rows.items()]
            for heading, rows in self._table.items()
        }


def summary(one: click.Command) -> str:
    """The first sentence of a command's help."""
    return one.get_short_help_str(limit=1000)


def command(name: str | None = None, **given: Any) -> _Decorator:
    """As click's decorator; examples and topics beside what that takes."""
    return click.command(name, cls=Command, **given)


def group(name: str | None = None, **given: Any) -> Callable[[Callable[..., object]], Group]:
    """As click's decorator; examples and topics beside what that takes."""
    return click.group(name, cls=Group, **given)

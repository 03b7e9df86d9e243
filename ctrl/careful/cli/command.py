"""Base classes of carefulctl's commands: help under headings, with examples at its end.

Owns the layout of help, on terminals and in manual pages.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from careful.cli import interrupt

#: Width of an example; the explanation of a longer example begins on a line of its own.
_EXAMPLE_COLUMNS = 46


#: The options of a command by name, as click passes them.
Given = dict[str, Any]
_Decorator = Callable[[Callable[..., object]], "Command"]
_F = TypeVar("_F", bound=Callable[..., object])
_NONE = object()


def option(
    names: str, kind: Any, text: str, default: object = _NONE, **given: Any
) -> Callable[[_F], _F]:
    """Declares an option.

    Args:
        names: as help shows them, such as "-c --count N"; a word in lower case is the parameter's
            name.
        kind: its type.
        text: its help.
        default: a value, or its text on the command line, which the help shows.
        given: further arguments of click.option().
    """
    if default is not _NONE:
        given["default"] = default
    words = names.split()
    if words[-1] != words[-1].lower():
        given["metavar"] = words.pop()
    return click.option(*words, type=kind, help=text, **given)


def flag(names: str, text: str, **given: Any) -> Callable[[_F], _F]:
    """Declares an option without a value; arguments are those of option()."""
    return click.option(*names.split(), is_flag=True, help=text, **given)


class _Help(click.Command):
    """Help with options under headings, then examples, then further topics.

    Args:
        examples: command lines and what each does.
        topics: pages of `carefulctl help` that explain more.
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
        """Returns the options and their help below each heading, in order."""
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
        """Writes each heading with its options, a group's commands, and the examples."""
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses -h among other flags (-avh): in rsync, -h does not ask for help."""
        options = [one for one in self.params if isinstance(one, click.Option) and one.is_flag]
        flags = {name for one in options for name in one.opts} | {"-h"}
        for word in args[: args.index("--") if "--" in args else None]:
            among = word[:1] == "-" and len(word) > 2 and "h" in word
            if among and not ctx.resilient_parsing and {f"-{one}" for one in word[1:]} <= flags:
                raise click.UsageError(f"in {word}, -h means --help: leave out the h", ctx)
        return super().parse_args(ctx, args)


class Group(_Help, click.Group):
    """A group of commands; their summaries are never cut."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            meant = similar(args[0], self.list_commands(ctx))
            raise click.UsageError(f"no such command {args[0]!r}{meant}", ctx) from None

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        names = self.list_commands(ctx)
        found = [(name, self.get_command(ctx, name)) for name in names]
        shown = [(name, summary(one)) for name, one in found if one and not one.hidden]
        return {"Commands": shown}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, rows in self.sections(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class LazyGroup(Group):
    """A group that imports a command on first use.

    Args:
        table: heading -> name -> summary.
        folders: heading -> prefix of its commands' modules.
        elsewhere: name -> "module:attribute" of commands that are not PREFIX + NAME:NAME.
    """

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, Mapping[str, str]],
        folders: Mapping[str, str],
        elsewhere: Mapping[str, str],
        **given: Any,
    ) -> None:
        super().__init__(*args, **given)
        self._table = table
        self.targets = {
            name: f"{folders.get(heading, '')}{name}:{name}"
            for heading, rows in table.items()
            for name in rows
        }
        self.targets |= elsewhere

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.targets:
            return None
        module, _, attribute = self.targets[cmd_name].partition(":")
        command = getattr(importlib.import_module(f"careful.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        interrupt.disarm()
        return command

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Returns the table's summaries, so that a listing imports no command."""
        return {heading: list(rows.items()) for heading, rows in self._table.items()}


#: Commands of scp, rsync, iperf3, WireGuard and systemd, and ours.
_ELSEWHERE = {
    "genkey": "key new",
    "iperf": "speed",
    "iperf3": "speed",
    "pubkey": "key show",
    "rsync": "sync",
    "scp": "cp",
    "show": "status",
    "start": "up",
    "stop": "down",
    "tcpdump": "capture",
    "traceroute": "measure pathchar",
}


def similar(word: str, known: Iterable[str]) -> str:
    """Returns "; did you mean …?" with the known word that is most like `word`, or ""."""
    known = list(known)
    there = _ELSEWHERE.get(word, "")
    found = [there] if there.split(" ")[0] in known else []
    found += [last for last in there.split(" ")[1:] if last in known]
    found = found or difflib.get_close_matches(word, known, 1)
    return f"; did you mean {found[0]}?" if found else ""


def summary(one: click.Command) -> str:
    """Returns a command's summary: the first sentence of its help."""
    return one.get_short_help_str(limit=1000)


def command(name: str | None = None, **given: Any) -> _Decorator:
    """Returns a decorator like click's, with examples and topics."""
    return click.command(name, cls=Command, **given)


def group(name: str | None = None, **given: Any) -> Callable[[Callable[..., object]], Group]:
    """Returns a decorator like click's, with examples and topics."""
    return click.group(name, cls=Group, **given)

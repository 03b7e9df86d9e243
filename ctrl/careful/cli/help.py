"""`carefulctl help`: pages of the manual, and the help of commands."""

from __future__ import annotations

import shutil
import sys

import click
from click.shell_completion import CompletionItem

from careful import man
from careful.cli.command import command, similar
from careful.cli.common import say


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    names = {*man.topics(), *group.list_commands(ctx)} if not ctx.params.get("words") else set()
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _overview(root: click.Context) -> str:
    formatter = root.make_formatter()
    root.command.format_help(root, formatter)
    with formatter.section("Topics"):
        formatter.write_dl(list(man.topics().items()))
    return formatter.getvalue().rstrip()


def _of_command(root: click.Context, words: tuple[str, ...]) -> str:
    """Returns the help of a command, like its --help.

    Raises click.UsageError if there is no such command or topic.
    """
    ctx, one = root, root.command
    for word in words:
        below = one.get_command(ctx, word) if isinstance(one, click.Group) else None
        if below is None:
            names = one.list_commands(ctx) if isinstance(one, click.Group) else []
            meant = similar(word, [*man.topics(), *names])
            text = f"no topic or command {' '.join(words)!r}{meant}"
            raise click.UsageError(f"{text}; `carefulctl help` lists topics and commands")
        one, ctx = below, click.Context(below, parent=ctx, info_name=word)
    return one.get_help(ctx)


@command(
    "help",
    examples=[
        ("carefulctl help", "topics and commands"),
        ("carefulctl help files", "a page of the manual"),
        ("carefulctl help measure logp", "what `carefulctl measure logp --help` says"),
    ],
)
@click.argument("words", nargs=-1, metavar="[TOPIC | COMMAND...]", shell_complete=_complete)
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show a page of the manual, or the help of a command.

    The same pages are installed for man, which finds them if carefulctl is in PATH:
    `man carefulctl-get`, `man careful-files`.
    """
    root = ctx.find_root()
    if not words:
        say(_overview(root))
        return
    if len(words) > 1 or words[0] not in man.topics():
        say(_of_command(root, words))
        return
    from careful.man.terminal import WIDTH_MOST, shown  # rich: only for pages

    width = shutil.get_terminal_size((WIDTH_MOST, 24)).columns
    text = shown(man.source(words[0]), width, coloured=sys.stdout.isatty())
    if sys.stdout.isatty():
        click.echo_via_pager(text + "\n")
    else:
        say(text)

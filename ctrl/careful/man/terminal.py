"""A page of the manual as a terminal shows it: headings to the left, commands as they are typed."""

from __future__ import annotations

import io
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.text import Text
from rich.theme import Theme

#: Lines longer than that are hard to read, however wide a terminal is.
WIDTH_MOST = 80

_THEME = Theme(
    {
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold italic",
        "markdown.code": "bold",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)


class _Heading(Heading):
    LEVEL_ALIGN: ClassVar = {"h1": "left"}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("")
        yield from super().__rich_console__(console, options)


class _CodeBlock(CodeBlock):
    """Commands to be copied: no colours, no background, no lines folded."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = "\n".join(f"  {line}" for line in str(self.text).rstrip().splitlines())
        yield Text(lines, no_wrap=True, overflow="ignore")  # a Padding would cut them


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }


def shown(markdown: str, width: int, coloured: bool) -> str:
    """Returns a page as text.

    Args:
        markdown: its source.
        width: columns of the terminal.
        coloured: whether bold is made by escape sequences.
    """
    out = io.StringIO()
    console = Console(
        file=out,
        width=min(width, WIDTH_MOST),
        force_terminal=coloured,
        no_color=True,
        color_system="standard" if coloured else None,
        highlight=False,
        theme=_THEME,
    )
    console.print(_Page(markdown, hyperlinks=False), crop=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")

"""Manual pages in roff: sections 5 and 7 from the topics, section 1 from the commands' help.

pages.py writes them to man1, man5 and man7 below a directory.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from careful import __version__, man
from careful.cli.command import Command, Group, summary
from markdown_it import MarkdownIt
from markdown_it.token import Token

_FONTS = {"strong_open": r"\fB", "em_open": r"\fI", "strong_close": r"\fR", "em_close": r"\fR"}

#: A font escape, or the first character of an escape that stands for one character.
_ESCAPES = re.compile(r"\\f[BIR]|\\\(.")
#: Columns of an indented line on 80 columns, and between two cells.
_LINE, _GAP = 70, 2


def plain(text: str) -> str:
    """Escapes a text for roff."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti")
    text = text.replace("…", "...").replace("─", r"\-")  # groff's ASCII output lacks both
    text = text.replace("'", r"\(aq").replace("`", r"\(ga").replace("^", r"\(ha")
    return "\n".join(rf"\&{line}" if line.startswith(".") else line for line in text.split("\n"))


def _inline(tokens: Sequence[Token]) -> str:
    parts = []
    for one in tokens:
        if one.type == "code_inline":
            parts.append(rf"\fB{plain(one.content)}\fR")
        elif one.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        else:
            parts.append(_FONTS.get(one.type, plain(one.content)))
    return "".join(parts)


def _verbatim(text: str) -> list[str]:
    return [".PP", ".RS 4", ".nf", plain(text.rstrip("\n")), ".fi", ".RE"]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table: a narrow one keeps its lines, tbl folds the cells of a wide one."""
    widest = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    if sum(widest) + _GAP * (len(widest) - 1) <= _LINE:
        formats = [[f"{one}{_GAP}"] * (len(widest) - 1) + [one] for one in ("lb", "l")]
        cells = ["\t".join(row) for row in rows]
    else:
        formats = [["lb"] * len(widest), ["l"] * (len(widest) - 1) + ["lx"]]
        cells = ["\t".join(f"T{{\n{cell}\nT}}" for cell in row) for row in rows]
    bold, plain = (" ".join(one) for one in formats)
    # A folded cell of one word fills no line: troff would warn without .na.
    return [".na", ".TS", bold, f"{plain}.", *cells, ".TE", ".ad"]


def _columns(cell: str) -> int:
    return len(_ESCAPES.sub("", cell.replace(r"\-", "-")))


def body(markdown: str) -> list[str]:
    """Returns Markdown, without its first heading, as lines of roff."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    lines: list[str] = [".SH DESCRIPTION"]
    rows: list[list[str]] = []
    opened = ""
    for at, one in enumerate(tokens):
        inside = _inline(one.children or ()) if one.type == "inline" else ""
        if one.type in ("heading_open", "paragraph_open", "th_open", "td_open"):
            opened = one.tag
            if opened == "p" and tokens[at - 1].type != "list_item_open":
                lines.append(".PP")
        elif one.type == "list_item_open":
            lines.append(r".IP \(bu 2")
        elif one.type == "tr_open":
            rows.append([])
        elif one.type == "table_close":
            lines += _table(rows)
            rows = []
        elif one.type in ("fence", "code_block"):
            lines += _verbatim(one.content)
        elif one.type == "inline" and opened in ("th", "td"):
            rows[-1].append(inside)
        elif one.type == "inline" and opened in ("h2", "h3"):
            macro = ".SH" if opened == "h2" else ".SS"
            lines.append(f'{macro} "{inside.upper() if opened == "h2" else inside}"')
        elif one.type == "inline" and opened != "h1":
            lines.append(inside)
    return lines


def page(name: str, section: int, description: str, lines: Sequence[str]) -> str:
    """Returns a page from its name, section, one-line description, and the rest in roff."""
    head = [
        "'\\\" t",
        f'.TH "{name.upper()}" "{section}" "" "careful {__version__}" "careful"',
        r".fchar \[u0394] Delta",  # groff 1.24's ASCII output lacks it
        ".SH NAME",
        rf"{plain(name)} \- {plain(description)}",
    ]
    return "\n".join([*head, *lines]) + "\n"


def title(name: str) -> tuple[str, int]:
    """Returns name and section of a topic's page; a file's page has its name, in section 5."""
    return (name, 5) if name.endswith(".toml") else (f"careful-{name}", 7)


def topic(name: str) -> str:
    """Returns the page of a topic."""
    return page(*title(name), man.topics()[name], body(man.source(name)))


def _listed(records: Sequence[tuple[str, str]]) -> list[str]:
    lines = []
    for name, text in records:
        lines += [".TP", rf"\fB{plain(name)}\fR", plain(text)]
    return lines


def _paragraphs(text: str) -> Iterator[str]:
    """Yields paragraphs; like click, keeps those after a backspace unchanged."""
    for one in inspect.cleandoc(text).split("\n\n"):
        verbatim = one.startswith("\b\n")
        yield from _verbatim(one[2:]) if verbatim else (".PP", plain(one.strip()))


def command(names: Sequence[str], one: click.Command) -> str:
    """Returns the page of a command, for section 1.

    Args:
        names: the names of the commands above it, `carefulctl` first, and its own.
        one: the command.
    """
    ctx = _context(names, one)
    usage = " ".join(one.collect_usage_pieces(ctx))
    lines = [".SH SYNOPSIS", rf"\fB{plain(ctx.command_path)}\fR {plain(usage)}"]
    lines += [".SH DESCRIPTION", *_paragraphs(one.help or "")]
    also = []
    if isinstance(one, (Command, Group)):
        lines.append(".SH OPTIONS")
        headings = one.headings(ctx)
        for heading, records in headings.items():
            lines += [f'.SS "{plain(heading)}"'] * (len(headings) > 1) + _listed(records)
        if isinstance(one, Group):
            lines.append(".SH COMMANDS")
            for heading, rows in one.sections(ctx).items():
                lines += [f'.SS "{plain(heading)}"', *_listed(rows)]
                also += ["-".join([*names, name]) + "(1)" for name, _ in rows]
        if one.examples:
            lines.append(".SH EXAMPLES")
            lines += _listed(one.examples)
        also += ["{}({})".format(*title(name)) for name in one.topics]
    also += ["-".join(names[:-1]) + "(1)"] * (len(names) > 1)
    lines += [".SH SEE ALSO", ", ".join(map(plain, also))] if also else []
    return page("-".join(names), 1, summary(one).rstrip("."), lines)


def _context(names: Sequence[str], one: click.Command) -> click.Context:
    ctx = None
    for name in names[:-1]:
        ctx = click.Context(click.Command(name), parent=ctx, info_name=name)
    settings = {"help_option_names": ["-h", "--help"], "show_default": True, **one.context_settings}
    return click.Context(one, parent=ctx, info_name=names[-1], **settings)


def commands(
    one: click.Command, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yields a command and all below it, with their names."""
    yield names, one
    if isinstance(one, click.Group):
        ctx = _context(names, one)
        for name in one.list_commands(ctx):
            below = one.get_command(ctx, name)
            assert below is not None
            yield from commands(below, (*names, name))


def write(directory: Path) -> int:
    """Writes every page below a directory; returns their number."""
    from careful.cli.main import cli

    pages = {}
    for name in man.topics():
        called, section = title(name)
        pages[f"man{section}/{called}.{section}"] = topic(name)
    for names, one in commands(cli, ("carefulctl",)):
        pages[f"man1/{'-'.join(names)}.1"] = command(names, one)
    for name, text in pages.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return len(pages)

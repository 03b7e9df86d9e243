"""The manual: a Markdown file a topic, whose first line is `# NAME - what it is about`.

Owns where pages are and what they are called; `terminal` shows one to people.
"""

from __future__ import annotations

from pathlib import Path

#: A line that stands for the table of the options of `up`.
_TABLE = "OPTIONS OF UP"


def _pages() -> dict[str, Path]:
    return {one.stem: one for one in Path(__file__).parent.rglob("*.md")}


def topics() -> dict[str, str]:
    """Returns the pages of the manual: name -> subject, in a line."""
    found = {}
    for one in _pages().values():
        head, _, _ = one.read_text(encoding="utf-8").partition("\n")
        name, _, said = head.removeprefix("# ").partition(" - ")
        found[name] = said
    return dict(sorted(found.items()))


def source(topic: str) -> str:
    """Returns a page's Markdown, with its first line; raises KeyError."""
    text = _pages()[topic].read_text(encoding="utf-8")
    if _TABLE in text:
        from careful.control.options.up_options import table

        text = text.replace(_TABLE, table())
    return text

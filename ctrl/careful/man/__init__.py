"""The manual: a Markdown file a topic, whose first line is `# NAME - what it is about`.

Owns where pages are and what they are called; `terminal` shows one to people.
"""

from __future__ import annotations

from importlib.resources import files

#: A line that stands for the table of the options of `up`.
_TABLE = "OPTIONS OF UP"


def topics() -> dict[str, str]:
    """Returns the pages of the manual: name -> subject, in a line."""
    found = {}
    for one in files(__name__).iterdir():
        if one.name.endswith(".md"):
            head, _, _ = one.read_text(encoding="utf-8").partition("\n")
            name, _, said = head.removeprefix("# ").partition(" - ")
            found[name] = said
    return dict(sorted(found.items()))


def source(topic: str) -> str:
    """Returns a page's Markdown, with its first line; raises FileNotFoundError."""
    text = (files(__name__) / f"{topic}.md").read_text(encoding="utf-8")
    if _TABLE in text:
        from careful.control.options.up_options import table

        text = text.replace(_TABLE, table())
    return text

"""What of a tree is meant: patterns, and lists of names.

Patterns are rsync's: the first that fits decides, what none fits is in; what is below an
excluded directory is out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

#: POSIX's classes, of ASCII.
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


def _char(text: str, at: int) -> tuple[str, int]:
    """One character of a set, without its backslash, and where the next is."""
    at += text[at] == "\\" and at + 1 < len(text)
    return text[at], at + 1


def _set(text: str, at: int) -> tuple[str, int]:
    """What stands in brackets as a regular expression, and where it ends; "": they stay open.

    Args:
        text: the pattern.
        at: behind the opening bracket.
    """
    start, begin = at, at + (text[at : at + 1] in ("!", "^"))
    found, at = "", begin
    while at < len(text) and (text[at] != "]" or at == begin):
        named = text.find(":]", at) if text.startswith("[:", at) else -1
        if named > 0:
            name, at = text[at + 2 : named], named + 2
            if name not in _CLASSES:
                raise ValueError(f"{text}: there is no [:{name}:]")
            found += _CLASSES[name]
            continue
        first, at = _char(text, at)
        last = first
        if text.startswith("-", at) and at + 1 < len(text) and text[at + 1] != "]":
            last, at = _char(text, at + 1)
        if last < first:
            raise ValueError(f"{text}: {first}-{last} is not a range: {last} comes before {first}")
        found += re.escape(first) + (f"-{re.escape(last)}" if last != first else "")
    if at >= len(text):
        return "", at
    return f"(?!/)[{'^' if begin > start else ''}{found}]", at + 1


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """A pattern of a name without a trailing slash.

    Raises:
        ValueError: it is none.
    """
    anchored = pattern.startswith("/")
    rest = pattern.removeprefix("/")
    text, at = "" if anchored else "(?:.*/)?", 0
    while at < len(rest):
        char = rest[at]
        if rest.startswith("**", at):
            text, at = text + ".*", at + 1
        elif char == "*":
            text += "[^/]*"
        elif char == "?":
            text += "[^/]"
        elif char == "[" and (one := _set(rest, at + 1))[0]:
            text, at = text + one[0], one[1] - 1
        elif char == "\\" and at + 1 < len(rest):
            at += 1
            text += re.escape(rest[at])
        else:
            text += re.escape(char)
        at += 1
    return re.compile(text, re.DOTALL)


def check_pattern(pattern: str) -> None:
    """Whether a pattern is one.

    Raises:
        ValueError: it has a bad set of characters.
    """
    _regex(pattern.rstrip("/"))


def fits_name(pattern: str, name: str) -> bool:
    """Whether a name without slashes fits a pattern; a dot in front is written, as in a shell.

    Raises:
        ValueError: it is no pattern.
    """
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return _regex("/" + pattern).fullmatch(name) is not None


def read_patterns(text: str) -> list[tuple[bool, str]]:
    """What a file of patterns says, as Filters has it; rsync's --exclude-from.

    A line each; "+ " in front includes; empty lines and those after "#" or ";" say nothing.
    """
    found = []
    for line in text.split("\n"):
        if line.strip() and line[0] not in "#;":
            sign, rest = line[:2], line[2:]
            found.append((sign == "+ ", rest if sign in ("+ ", "- ") else line))
    return found


@dataclass(frozen=True)
class Filters:
    """Which names of a tree are meant.

    Attributes:
        patterns: in order, (whether it includes, pattern). A pattern that begins with "/"
            is of the tree's top, one that ends with "/" of directories alone; "*" and "?"
            stop at "/", "**" does not.
        only: names, relative to the tree, that alone are meant, with what is below them;
            None: all.
    """

    patterns: tuple[tuple[bool, str], ...] = ()
    only: frozenset[str] | None = None

    def fits(self, name: str, is_dir: bool) -> bool:
        """Whether the patterns let a name in, if its directory is."""
        for include, pattern in self.patterns:
            if pattern.endswith("/") and not is_dir:
                continue
            if _regex(pattern.rstrip("/")).fullmatch(name):
                return include
        return True

    def fits_whole(self, name: str, is_dir: bool) -> bool:
        """Whether the patterns let in a name and every directory above it."""
        above = [name[:at] for at, char in enumerate(name) if char == "/"]
        return all(self.fits(one, True) for one in above) and self.fits(name, is_dir)

    def select(self, entries: Iterable[tuple[str, bool]]) -> set[str]:
        """The names that are meant.

        Args:
            entries: names with whether they are directories, parents first.
        """
        chosen: set[str] = set()
        barred: set[str] = set()
        parents = self._parents()
        for name, is_dir in entries:
            if name.rpartition("/")[0] in barred or not self.fits(name, is_dir):
                if is_dir:
                    barred.add(name)
            elif self.only is None or self._listed(name) or (is_dir and name in parents):
                chosen.add(name)
        return chosen

    def _parents(self) -> set[str]:
        found = set()
        for name in self.only or ():
            while name := name.rpartition("/")[0]:
                found.add(name)
        return found

    def _listed(self, name: str) -> bool:
        assert self.only is not None
        while name:
            if name in self.only:
                return True
            name = name.rpartition("/")[0]
        return False

"""Which names of a tree are meant: patterns, and lists of names.

Patterns are rsync's (exclude.c, lib/wildmatch.c). The first that fits decides. A name that none
fits is in; names below an excluded directory are out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

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


def _translated(pattern: str, open_bracket: str) -> str:
    """The regular expression of a pattern with wildcards.

    Args:
        pattern: without anything that a rule has around it.
        open_bracket: the regular expression of a bracket that is not closed.

    Raises:
        ValueError: it has a bad set of characters.
    """
    text, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**", at):
            text, at = text + ".*", at + 1
        elif char == "*":
            text += "[^/]*"
        elif char == "?":
            text += "[^/]"
        elif char == "[":
            one, end = _set(pattern, at + 1)
            text, at = text + (one or open_bracket), end - 1 if one else at
        elif char == "\\" and at + 1 < len(pattern):
            at += 1
            text += re.escape(pattern[at])
        else:
            text += re.escape(char)
        at += 1
    return text


class _Rule(NamedTuple):
    """A pattern, as rsync reads it.

    Attributes:
        regex: of `subject`.
        only_dirs: whether it fits directories alone.
        names: how many last components of a path are compared; 0: the whole path.
        prefix, suffix: what is put around a path first, the suffix only around a directory.
    """

    regex: re.Pattern[str]
    only_dirs: bool
    names: int = 0
    prefix: str = ""
    suffix: str = ""

    def fits(self, name: str, is_dir: bool) -> bool:
        """Reports whether it fits the path of an entry."""
        if self.only_dirs and not is_dir:
            return False
        parts = name.split("/")
        if self.names > len(parts):
            return False
        subject = "/".join(parts[-self.names :]) if self.names else name
        return self.regex.fullmatch(self.prefix + subject + self.suffix * is_dir) is not None


@cache
def _rule(pattern: str) -> _Rule:
    """A pattern without "+ " or "- " in front.

    Raises:
        ValueError: it has a bad set of characters.
    """
    only_dirs = len(pattern) > 1 and pattern.endswith("/")
    rest = pattern.removesuffix("/") if only_dirs else pattern
    is_wild, is_deep = any(char in rest for char in "*?["), "**" in rest
    anchored, slashes = rest.startswith("/"), rest.count("/")
    body = rest.removeprefix("/")
    # Without wildcards, a backslash is a backslash; a bracket that stays open fits nothing.
    text = _translated(body, "(?!)") if is_wild else re.escape(body)
    names, prefix = 0, ""
    if rest.startswith("**"):
        prefix = "/"
    elif not anchored and is_deep:
        text = f"(?:.*/)?{text}"
    elif not anchored:
        names = slashes + 1
    suffix = "/" if is_deep and rest.endswith("***") else ""
    return _Rule(re.compile(text, re.DOTALL), only_dirs, names, prefix, suffix)


def rules(given: Iterable[tuple[bool, str]]) -> tuple[tuple[bool, str], ...]:
    """The patterns of a command line, with rsync's prefixes taken off.

    "+ " in front includes and "- " excludes, whatever the option is called. "!" alone takes back
    all patterns so far, and an empty pattern is none.

    Args:
        given: in order, (whether the option includes, what follows it).

    Raises:
        ValueError: one has a bad set of characters, or nothing behind its sign.
    """
    found: list[tuple[bool, str]] = []
    for include, text in given:
        sign, rest = (text[:2], text[2:]) if text[:2] in ("+ ", "- ") else ("", text)
        if rest == "!" and not sign:
            found.clear()
        elif sign and not rest:
            raise ValueError(f"{text!r}: there is no pattern behind the sign")
        elif rest:
            _rule(rest)
            found.append((sign == "+ " if sign else include, rest))
    return tuple(found)


@cache
def _shell(pattern: str) -> re.Pattern[str]:
    return re.compile(_translated(pattern, "\\["), re.DOTALL)


def fits_name(pattern: str, name: str) -> bool:
    """Whether a name without slashes fits a pattern; a dot in front is written, as in a shell.

    Raises:
        ValueError: it is no pattern.
    """
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return _shell(pattern).fullmatch(name) is not None


def read_patterns(text: str) -> list[tuple[bool, str]]:
    """The lines of a file for --exclude-from, without comments ("#" or ";" in front)."""
    return [(False, line) for line in re.split("[\r\n]", text) if line and line[0] not in "#;"]


@dataclass(frozen=True)
class Filters:
    """Which names of a tree are meant.

    Attributes:
        patterns: in order, (whether it includes, pattern), as rules() returns them. A pattern that
            begins with "/" fits at the tree's top, one that ends with "/" fits directories alone,
            one that ends with "/***" a directory and all below it; "*" and "?" stop at "/", "**"
            does not.
        only: names, relative to the tree, that alone are meant, with what is below them;
            None: all.
    """

    patterns: tuple[tuple[bool, str], ...] = ()
    only: frozenset[str] | None = None

    def fits(self, name: str, is_dir: bool) -> bool:
        """Reports whether the patterns let a name in, if its directory is."""
        for include, pattern in self.patterns:
            if _rule(pattern).fits(name, is_dir):
                return include
        return True

    def fits_whole(self, name: str, is_dir: bool) -> bool:
        """Reports whether the patterns let in a name and every directory above it."""
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

"""Selects names of a tree by patterns and lists of names.

Patterns are rsync's (exclude.c, lib/wildmatch.c). The first match decides; a name without a match
is included. Names below an excluded directory are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

#: POSIX's character classes, in ASCII.
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
    """Returns one character of a set, without its backslash, and the next position."""
    at += text[at] == "\\" and at + 1 < len(text)
    return text[at], at + 1


def _bracket(text: str, at: int) -> tuple[str, int]:
    """Returns a bracket's regular expression ("": unclosed), and the next position."""
    start, begin = at, at + (text[at : at + 1] in ("!", "^"))
    regex, at = "", begin
    while at < len(text) and (text[at] != "]" or at == begin):
        class_end = text.find(":]", at) if text.startswith("[:", at) else -1
        if class_end > 0:
            name, at = text[at + 2 : class_end], class_end + 2
            if name not in _CLASSES:
                raise ValueError(f"{text}: there is no character class [:{name}:]")
            regex += _CLASSES[name]
            continue
        first, at = _char(text, at)
        last = first
        if text.startswith("-", at) and at + 1 < len(text) and text[at + 1] != "]":
            last, at = _char(text, at + 1)
        if last < first:
            raise ValueError(f"{text}: {first}-{last} is not a range: {last} comes before {first}")
        regex += re.escape(first) + (f"-{re.escape(last)}" if last != first else "")
    if at >= len(text):
        return "", at
    return f"(?!/)[{'^' if begin > start else ''}{regex}]", at + 1


@cache
def _translated(pattern: str, open_bracket: str) -> str:
    """Returns the regular expression of a pattern with wildcards.

    open_bracket: the regular expression of an unclosed bracket. Raises ValueError: a set of
    characters is invalid.
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
            bracket, end = _bracket(pattern, at + 1)
            text, at = text + (bracket or open_bracket), end - 1 if bracket else at
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
        regex: compared with the path, or with its last components.
        only_dirs: whether the pattern matches only directories.
        names: the count of last components to compare; 0: the whole path.
        prefix, suffix: added to a path before the comparison; suffix only to a directory.
    """

    regex: re.Pattern[str]
    only_dirs: bool
    names: int = 0
    prefix: str = ""
    suffix: str = ""

    def fits(self, name: str, is_dir: bool) -> bool:
        if self.only_dirs and not is_dir:
            return False
        parts = name.split("/")
        if self.names > len(parts):
            return False
        subject = "/".join(parts[-self.names :]) if self.names else name
        return self.regex.fullmatch(self.prefix + subject + self.suffix * is_dir) is not None


@cache
def _rule(pattern: str) -> _Rule:
    """Parses a pattern without its sign. Raises ValueError: a set of characters is invalid."""
    only_dirs = len(pattern) > 1 and pattern.endswith("/")
    rest = pattern.removesuffix("/") if only_dirs else pattern
    is_wild, is_deep = any(char in rest for char in "*?["), "**" in rest
    anchored, slashes = rest.startswith("/"), rest.count("/")
    body = rest.removeprefix("/")
    # Without wildcards, a backslash is literal; an unclosed bracket matches nothing.
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


def rules(options: Iterable[tuple[bool, str]]) -> tuple[tuple[bool, str], ...]:
    """Returns the patterns of a command line without rsync's prefixes.

    options: (whether the option includes, its text), in order. A prefix "+ " includes and "- "
    excludes, whatever the option. "!" alone removes all earlier patterns; an empty pattern is
    ignored. Raises ValueError: a set of characters is invalid, or no pattern follows a sign.
    """
    parsed: list[tuple[bool, str]] = []
    for include, text in options:
        sign, rest = (text[:2], text[2:]) if text[:2] in ("+ ", "- ") else ("", text)
        if rest == "!" and not sign:
            parsed.clear()
        elif sign and not rest:
            raise ValueError(f"{text!r}: no pattern follows the sign")
        elif rest:
            _rule(rest)
            parsed.append((sign == "+ " if sign else include, rest))
    return tuple(parsed)


def fits_name(pattern: str, name: str) -> bool:
    """Reports whether a name without slashes matches; wildcards skip a leading dot, as in a shell.
    Raises ValueError: the pattern is invalid.
    """
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return re.fullmatch(_translated(pattern, "\\["), name, re.DOTALL) is not None


def read_patterns(text: str) -> list[tuple[bool, str]]:
    """Returns the patterns of a file for --exclude-from, without comments ("#" or ";" in front)."""
    return [(False, line) for line in re.split("[\r\n]", text) if line and line[0] not in "#;"]


@dataclass(frozen=True)
class Filters:
    """Selects names of a tree.

    Attributes:
        patterns: in order, (whether it includes, pattern), as rules() returns them. A leading "/"
            matches only at the tree's top, a trailing "/" only directories, a trailing "/***" a
            directory and everything below; "*" and "?" stop at "/", "**" does not.
        only: the only names to include, relative to the tree, with everything below; None: all.
    """

    patterns: tuple[tuple[bool, str], ...] = ()
    only: frozenset[str] | None = None

    def fits(self, name: str, is_dir: bool) -> bool:
        """Reports whether the patterns include a name, given that its directory is included."""
        for include, pattern in self.patterns:
            if _rule(pattern).fits(name, is_dir):
                return include
        return True

    def fits_with_parents(self, name: str, is_dir: bool) -> bool:
        """Reports whether the patterns include a name and all directories above it."""
        above = [name[:at] for at, char in enumerate(name) if char == "/"]
        return all(self.fits(one, True) for one in above) and self.fits(name, is_dir)

    def select(self, entries: Iterable[tuple[str, bool]]) -> set[str]:
        """Returns the included names; `entries`: (name, whether a directory), parents first."""
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
        parents = set()
        for name in self.only or ():
            while name := name.rpartition("/")[0]:
                parents.add(name)
        return parents

    def _listed(self, name: str) -> bool:
        assert self.only is not None
        while name:
            if name in self.only:
                return True
            name = name.rpartition("/")[0]
        return False

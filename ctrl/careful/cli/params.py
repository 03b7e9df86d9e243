"""Option types that several commands share, such as sizes (64KiB) and lists of sizes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from careful.errors import CarefulError, InputError
from careful.units import parse_bytes, parse_seconds


class Parsed(click.ParamType):  # type: ignore[type-arg]  # click has the argument only since 8.2
    """Values that a function makes of their texts.

    Args:
        name: in help.
        parse: raises ValueError with what is wrong.
    """

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name, self._parse = name, parse

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):  # a default
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Whole(click.IntRange):
    """A whole number from `min` to `max`; help does not print the range."""

    def _describe_range(self) -> str:
        return ""


def _output_file(text: str) -> Path:
    """Returns a file for a result; checks that it can be written before anything is measured."""
    path = Path(text)
    if path.is_dir():
        raise InputError(f"{path}: is a directory")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such directory")
    try:
        if path.is_file():
            path.open("r+b").close()
        elif not path.exists():  # a new file, whose directory must be writable
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return path


def _plot_file(text: str) -> Path:
    from careful.render.figure import check_path  # numpy: only for commands that plot

    check_path(text)
    return _output_file(text)


def duration(
    per_s: int = 1, most_s: float = 1e6, *, zero: bool = False, whole: bool = False
) -> Parsed:
    """Returns the parser of a time above 0: 30, 30s, 500ms, 2m. A bare number is seconds.

    Args:
        per_s: units of the value per second: 1000 gives milliseconds.
        most_s: the longest time, seconds.
        zero: whether 0 is allowed, too.
        whole: whether the value is rounded to a whole number of units, at least one.
    """

    def parse(text: str) -> float:
        seconds = parse_seconds(text)
        if seconds < 0 or (seconds == 0 and not zero):
            raise InputError(f"{text} must be above 0")
        if seconds > most_s:
            raise InputError(f"{text} must be at most {most_s:g} s")
        return max(1, round(seconds * per_s)) if whole else seconds * per_s

    return Parsed("time", parse)


def _share(text: str) -> float:
    """Returns a number above 0 and below 1. click's own type accepts NaN."""
    try:
        number = float(text)
    except ValueError:
        raise InputError(f"{text!r} is not a number") from None
    if not 0 < number < 1:  # false for NaN
        raise InputError(f"{text} must be above 0 and below 1")
    return number


def host_path(text: str) -> tuple[str, str]:
    """Splits HOST:PATH into host and path. Raises click.UsageError if there is no host."""
    # Here, because it loads the binding, which commands that only compute do not need.
    from careful.address import split_remote

    scheme, is_url, rest = text.partition("://")
    if is_url and scheme.isalpha():
        host, _, path = rest.rpartition("@")[2].partition("/")
        host = host if host.startswith("[") else host.partition(":")[0]  # without a port
        of = " for Python" if scheme == "careful" else ""
        raise click.UsageError(f"{text} is a URL{of}: write {host}:{path}")
    try:
        return split_remote(text)
    except CarefulError as error:
        meant = "" if "/" in text or ":" in text else f"; did you mean {text}:?"
        raise click.UsageError(f"{error}{meant}") from None


#: A number of bytes: 4096, 64KiB, 50MB, 1G.
BYTES = Parsed("bytes", parse_bytes)
#: Sizes separated by commas.
BYTES_LIST = Parsed("bytes,...", lambda text: tuple(map(parse_bytes, text.split(","))))
OUTPUT = Parsed("file", _output_file)
PLOT = Parsed("file", _plot_file)
SECONDS = duration()
SHARE = Parsed("share", _share)

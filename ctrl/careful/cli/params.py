"""Option types that several commands share, such as sizes (64KiB) and lists of sizes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from careful.cli.command import ParamType
from careful.errors import CarefulError
from careful.units import parse_bytes, parse_seconds


class Bytes(ParamType[int]):
    """A number of bytes: 4096, 64KiB, 50MB, 1G."""

    name = "bytes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class BytesList(ParamType[tuple[int, ...]]):
    """Sizes separated by commas."""

    name = "bytes,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(Bytes().convert(part, param, ctx) for part in str(value).split(","))


class OutputFile(ParamType[Path]):
    """A file for a result; checked before anything is measured."""

    name = "file"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        path = Path(str(value))
        if path.is_dir():
            self.fail(f"{path}: is a directory", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path.parent}: no such directory", param, ctx)
        try:
            if path.is_file():
                path.open("r+b").close()
            elif not path.exists():  # a new file, whose directory must be writable
                tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            self.fail(f"{path}: {error.strerror}", param, ctx)
        return path


class PlotFile(OutputFile):
    """A file for a plot; checked before anything is measured."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        from careful.render.figure import check_path  # numpy: only for commands that plot

        try:
            check_path(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


class Whole(click.IntRange):
    """A whole number from `min` to `max`; help does not print the range."""

    def _describe_range(self) -> str:
        return ""


class Duration(ParamType[float]):
    """A time above 0: 30, 30s, 500ms, 2m. A bare number is seconds.

    Args:
        per_s: units of the value per second: 1000 gives milliseconds.
        most_s: the longest time, seconds.
        zero: whether 0 is allowed, too.
    """

    name = "time"

    def __init__(self, per_s: int = 1, most_s: float = 1e6, zero: bool = False) -> None:
        self._per_s, self._most_s, self._zero = per_s, most_s, zero

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):  # a default
            return value
        try:
            seconds = parse_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds < 0 or (seconds == 0 and not self._zero):
            self.fail(f"{value} must be above 0", param, ctx)
        if seconds > self._most_s:
            self.fail(f"{value} must be at most {self._most_s:g} s", param, ctx)
        return seconds * self._per_s


class WholeDuration(ParamType[int]):
    """A time in whole milliseconds or microseconds, at least one."""

    name = "time"

    def __init__(self, per_s: int, most_s: float) -> None:
        self._duration = Duration(per_s, most_s)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        return max(1, round(self._duration.convert(value, param, ctx)))


class Share(ParamType[float]):
    """A number above 0 and below 1. click's own type accepts NaN."""

    name = "share"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = float(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 0 < number < 1:  # false for NaN
            self.fail(f"{value} must be above 0 and below 1", param, ctx)
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


BYTES = Bytes()
OUTPUT = OutputFile()
SECONDS = Duration()
SHARE = Share()
PLOT = PlotFile()
BYTES_LIST = BytesList()

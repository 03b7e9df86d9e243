"""Option types that several commands share: sizes such as 64KiB, and lists of them."""

from __future__ import annotations

import math
from pathlib import Path

import click

from careful.units import parse_bytes


class Bytes(click.ParamType[int]):
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


class BytesList(click.ParamType[tuple[int, ...]]):
    """Sizes with commas between them."""

    name = "bytes,…"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(Bytes().convert(part, param, ctx) for part in str(value).split(","))


class PlotFile(click.ParamType[Path]):
    """A file that a plot can be written to, found out before anything is measured."""

    name = "file"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        from careful.report.figure import check_path  # numpy: not for commands that plot nothing

        path = Path(str(value))
        try:
            check_path(path)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path.parent}: no such directory", param, ctx)
        return path


class OutputFile(click.ParamType[Path]):
    """A file that a result can be written to, found out before anything is measured."""

    name = "file"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        path = Path(str(value))
        if path.is_dir():
            self.fail(f"{path}: is a directory", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path.parent}: no such directory", param, ctx)
        return path


class Number(click.ParamType[float]):
    """A finite number above 0: below `below`, at most `most`. Click's own takes NaN."""

    def __init__(self, name: str, below: float = math.inf, most: float = 1e6) -> None:
        self.name, self._below, self._most = name, below, most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = float(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        if not 0 < number < self._below:
            bound = "" if math.isinf(self._below) else f" and below {self._below:g}"
            self.fail(f"{value} must be above 0{bound}", param, ctx)
        if number > self._most:
            self.fail(f"{value} must be at most {self._most:g}", param, ctx)
        return number


BYTES = Bytes()
OUTPUT = OutputFile()
#: Seconds, microseconds, and shares of a figure.
SECONDS = Number("float")
MICROSECONDS = Number("float", most=1e12)
SHARE = Number("float", below=1)
PLOT = PlotFile()
BYTES_LIST = BytesList()

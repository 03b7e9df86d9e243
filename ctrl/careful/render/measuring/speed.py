"""The output of `carefulctl speed`: a table that can be pasted, JSON, and bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from careful.measure.path.speed import Quartiles, Row
from careful.render import figure
from careful.render.tables import Table, report_text

#: Units for people, each with its size; the largest that fits is shown.
_UNITS = {
    "us": {"ms": 1e3, "µs": 1.0},
    "gbit_per_s": {"Gbit/s": 1.0, "Mbit/s": 1e-3, "kbit/s": 1e-6},
}


def _unit(row: Row) -> tuple[str, float]:
    """Returns the unit of a row, and its size."""
    units = _UNITS[row.kind.unit]
    least = min(one.median for one in row.by_layer.values())
    return next((one for one in units.items() if least >= one[1]), list(units.items())[-1])


def _number(value: float) -> str:
    """Returns three digits, and no exponent."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _cell(found: Quartiles, size: float = 1.0) -> str:
    low, median, high = (_number(one / size) for one in (found.low, found.median, found.high))
    return f"{median} ({low}-{high})"


def table(rows: Sequence[Row], host: str, seconds: float, notes: Sequence[str]) -> str:
    """Returns the table; notes: lines below it."""
    names = list(rows[0].by_layer)
    shown = [
        (
            row.kind.name,
            unit,
            *(_cell(row.by_layer[name], size) for name in names),
            *([_cell(row.ratio)] if row.ratio else []),
        )
        for row in rows
        for unit, size in [_unit(row)]
    ]
    columns = ["", "", *names, *([" / ".join(names)] if len(names) > 1 else [])]
    title = f"{' and '.join(names)} to {host}, in turn for {seconds:.0f} s"
    what = "median (quartiles); a request has a reply, a stream gets one block after another"
    return report_text([Table(title, columns, shown), what, "", *notes])


def _figures(found: Quartiles, name: str) -> dict[str, float]:
    return {f"{part}_{name}": round(value, 4) for part, value in vars(found).items()}


def speed_figures(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Returns the rows for JSON: of each layer and of the ratio, the quartiles."""
    return [
        {
            "kind": row.kind.name,
            "message_bytes": row.kind.nbytes,
            **{name: _figures(one, row.kind.unit) for name, one in row.by_layer.items()},
            "ratio": vars(row.ratio) if row.ratio else None,
        }
        for row in rows
    ]


def draw(rows: Sequence[Row], host: str, path: Path) -> None:
    """Draws a panel for each kind, with a bar for each layer and its interval."""
    whole, (panels,) = figure.grid(1, len(rows), size=(11.0, 4.0), widths=[1.0] * len(rows))
    for pair, row in zip(panels, rows, strict=True):
        unit, size = _unit(row)
        better = "more is better" if row.kind.is_rate else "less is better"
        what = "rate" if row.kind.is_rate else "time"
        figure.label(pair, f"{row.kind.name}\nto {host}", better, f"{what} ({unit}; quartiles)")
        each = list(row.by_layer.values())
        values = [one.median / size for one in each]
        spread = [
            [(one.median - one.low) / size for one in each],
            [(one.high - one.median) / size for one in each],
        ]
        colours = ["#4477AA", "#BBBBBB"][: len(each)]
        # The figure stands below the name: at the bar's end, it would seem to be the quartile.
        names = [
            f"{name}\n{_number(value)}" for name, value in zip(row.by_layer, values, strict=True)
        ]
        pair.bar(names, values, yerr=spread, capsize=4, color=colours, width=0.6)
    figure.save(whole, path)

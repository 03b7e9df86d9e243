"""The only module that imports matplotlib: figures in the project's style, and their files.

Uses the eight colours of Okabe and Ito, which colour-blind readers tell apart. Every series has a
marker or a dash as well, so that no plot depends on colour alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from careful.errors import InputError
from careful.extras import need
from careful.units import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 3)))
SUFFIXES = (".png", ".svg")
#: Width that the ordinate's labels take from a legend below the axes, pixels.
_BESIDE_PX = 90
#: Height of ticks and labels between the axes and a legend below, points.
_BELOW_PT = 46.0
#: Colours of a PNG; anti-aliased text and lines need no more.
COLOURS_MAX = 64


def check_path(path: str | Path) -> None:
    """Checks, before a measurement starts, that its plot can be drawn. Raises ValueError: the name
    ends in neither .png nor .svg. Raises MissingExtraError: matplotlib is not installed.
    """
    if Path(path).suffix not in SUFFIXES:
        raise InputError(f"{path}: plots are .png or .svg")
    need("matplotlib", "a plot")


def ink(background: str) -> str:
    """Returns black or white, whichever reads better on a colour #RRGGBB."""
    red, green, blue = (int(background[i : i + 2], 16) / 255 for i in (1, 3, 5))
    # Relative luminance (WCAG 2) with gamma 2.2; both contrasts are 4.6 at 0.18.
    bright = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return "black" if bright > 0.18 else "white"


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcdefaults()  # ignores a matplotlibrc in the current directory: anybody may write it
    from matplotlib import pyplot

    # Text is twice as large as a page needs, so that plots are readable at half their size.
    mpl.rcParams.update(
        {
            "font.size": 14,
            "axes.titlesize": 15,
            "legend.fontsize": 12,
            "lines.linewidth": 2.2,
            "svg.fonttype": "none",
        }
    )
    return pyplot


def _style(pair: Axes) -> None:
    pair.grid(True, color="#DDDDDD", linewidth=0.8)
    pair.set_axisbelow(True)
    pair.ticklabel_format(useOffset=False, style="plain")
    pair.spines[["top", "right"]].set_visible(False)


def axes(
    title: str, x: str, y: str, *, size: tuple[float, float] = (8.0, 5.0)
) -> tuple[Figure, Axes]:
    """Returns a figure with labelled axes; x and y carry their unit in parentheses."""
    figure, pair = _pyplot().subplots(figsize=size, layout="constrained")
    label(pair, title, x, y)
    _style(pair)
    return figure, pair


def label(pair: Axes, title: str, x: str, y: str) -> None:
    """Labels axes; x and y carry their unit in parentheses."""
    pair.set_title(title, loc="left")
    pair.set_xlabel(x)
    pair.set_ylabel(y)


def grid(
    rows: int, columns: int, *, size: tuple[float, float], widths: Sequence[float]
) -> tuple[Figure, list[list[Axes]]]:
    """Returns a figure with rows of unlabelled axes; widths: of its columns."""
    figure, pairs = _pyplot().subplots(
        rows,
        columns,
        figsize=size,
        layout="constrained",
        squeeze=False,
        gridspec_kw={"width_ratios": list(widths)},
    )
    for row in pairs:
        for pair in row:
            _style(pair)
    return figure, [list(row) for row in pairs]


def legend_below(pair: Axes, *, ncols: int = 1, **given: Any) -> None:
    """Draws a legend under the axis' label, so that it hides nothing.

    ncols: columns, fewer if they are wider than the figure.
    """
    from matplotlib.transforms import ScaledTranslation

    scale = pair.figure.dpi_scale_trans
    under = pair.transAxes + ScaledTranslation(0, -_BELOW_PT / 72, scale)
    for columns in range(ncols, 0, -1):
        at: dict[str, Any] = {"bbox_to_anchor": (0, 0), "bbox_transform": under}
        legend = pair.legend(loc="upper left", ncols=columns, **at, **given)
        room = pair.figure.bbox.width - _BESIDE_PX
        if legend.get_window_extent().width <= room:
            return
    longest = max(len(text.get_text()) for text in legend.get_texts())
    most = int(longest * room / legend.get_window_extent().width) - 2
    for text in legend.get_texts():
        text.set_text(textwrap.fill(text.get_text(), most))


def plain_numbers(pair: Axes) -> None:
    """Labels a logarithmic ordinate without exponents: 0.1, 1, 100, and some values between."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, value: float, position: int | None = None) -> str:
            return f"{value:,.10g}" if super().__call__(value, position) else ""

    pair.yaxis.set_major_formatter(Plain())
    pair.yaxis.set_minor_formatter(Plain())
    pair.tick_params(axis="y", which="minor", labelsize=10)


def _fit_time_unit(axis: Axis) -> None:
    """Shows an axis whose label has (µs) in the unit of its largest time, as legends do."""
    from matplotlib.ticker import Formatter

    unit, scale = time_unit(axis.get_view_interval()[1])
    text = axis.get_label_text()
    if "(µs)" not in text or unit == "µs":
        return

    class Scaled(Formatter):
        def __init__(self, inner: Formatter) -> None:
            self.inner = inner

        def set_locs(self, locs: list[float]) -> None:
            self.inner.set_locs(locs)

        def __call__(self, value: float, position: int | None = None) -> str:
            return f"{value / scale:,.10g}" if self.inner(value, position) else ""

    axis.set_label_text(text.replace("(µs)", f"({unit})"))
    axis.set_major_formatter(Scaled(axis.get_major_formatter()))
    axis.set_minor_formatter(Scaled(axis.get_minor_formatter()))


def legend_above(figure: Figure, pair: Axes) -> None:
    """Draws one legend above all axes of a figure; pair: axes that have every series."""
    handles, names = pair.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper right", ncols=len(names))


def lines(
    pair: Axes, x: Sequence[float], series: Mapping[str, Sequence[float]], *, markers: bool = True
) -> None:
    """Draws named series over x, each with its own colour, dash and marker."""
    for number, (name, values) in enumerate(series.items()):
        pair.plot(
            x,
            values,
            label=name,
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)] if markers else None,
            markersize=7,
        )


def heat(
    figure: Figure,
    pair: Axes,
    values: npt.NDArray[np.float64] | npt.NDArray[np.int64],
    columns: Sequence[str],
    rows: Sequence[str],
    unit: str,
) -> None:
    """Draws a heat map with values in its cells, NaN empty; cividis keeps its order in grey."""
    image = pair.imshow(values, aspect="auto", origin="lower", cmap="cividis")
    low, high = image.get_clim()
    known = values[np.isfinite(values)]
    digits = 0 if (known == known.round()).all() else 1 if high - low >= 2 else 2
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if not np.isfinite(value):
                continue
            light = value < low + 0.6 * (high - low)
            pair.text(
                j,
                i,
                f"{value:.{digits}f}",
                ha="center",
                va="center",
                fontsize=12,
                color="white" if light else "black",
            )
    pair.set_xticks(range(len(columns)), columns)
    pair.set_yticks(range(len(rows)), rows)
    pair.grid(False)
    figure.colorbar(image, ax=pair, label=unit)


def save(figure: Figure, path: str | Path) -> None:
    """Writes and closes the figure; raises ValueError for another suffix than SUFFIXES."""
    from matplotlib import pyplot
    from PIL import Image  # matplotlib needs it

    check_path(path)
    for pair in figure.axes:
        _fit_time_unit(pair.xaxis)
        _fit_time_unit(pair.yaxis)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    if Path(path).suffix == ".png":  # fewer colours: a quarter of the bytes
        with Image.open(path) as image:
            image.convert("RGB").quantize(COLOURS_MAX, dither=Image.Dither.NONE).save(
                path, optimize=True
            )

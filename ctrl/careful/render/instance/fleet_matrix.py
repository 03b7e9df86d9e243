"""All pairs of hosts as tables, as JSON, and as a heat map."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from careful.errors import InputError
from careful.fleet.matrix import FIGURES, Matrix, Odd, odd, shared_host, values
from careful.render.tables import alarm, table


def matrix_figures(matrix: Matrix) -> dict[str, object]:
    """Returns every pair, and the odd ones."""
    found = odd(matrix)
    return {
        "pairs": [
            {"from": local, "to": remote, **asdict(cell), "error": cell.error or None}
            for (local, remote), cell in matrix.items()
        ],
        "odd": [
            {"from": one.pair[0], "to": one.pair[1]}
            | {key: value for key, value in vars(one).items() if key != "pair"}
            for one in found
        ],
        "odd_host": shared_host(found) or None,
        "latency_is": "half of the shortest round trip of blackbox's smallest size",
        "G_is": "the sum of all stages, from the shortest round trips, by payload",
    }


def _sentence(one: Odd) -> str:
    local, remote = one.pair
    if one.score is None:
        return f"{local} to {remote} lost {one.value:.0f} frames"
    return (
        f"{local} to {remote}: {FIGURES[one.figure]} {one.value:.4g}, the median is "
        f"{one.median:.4g} ({one.score:.1f} deviations)"
    )


def _names(matrix: Matrix) -> list[str]:
    return sorted({name for pair in matrix for name in pair})


def matrix_text(matrix: Matrix) -> str:
    """Returns a table of each figure: from the row's host to the column's; odd ones red."""
    found = odd(matrix)
    names = _names(matrix)
    parts = []
    for figure, title in FIGURES.items():
        shown = {pair: "failed" for pair, cell in matrix.items() if cell.error}
        digits = ".0f" if figure == "lost_frames" else ".4g"
        shown |= {pair: f"{value:{digits}}" for pair, value in values(matrix, figure).items()}
        shown |= {one.pair: alarm(shown[one.pair]) for one in found if one.figure == figure}
        rows = [(local, *(shown.get((local, remote), "-") for remote in names)) for local in names]
        parts.append(table(title, ("from \\ to", *names), rows))
    parts.append("\n".join(map(_sentence, found)) or "no pair is odd")
    if host := shared_host(found):
        parts[-1] += f"\nall odd pairs include {host}"
    return "\n\n".join(parts)


def draw_matrix(matrix: Matrix, path: Path) -> None:
    """Draws a heat map of each figure. Raises ValueError if there is none."""
    import numpy as np

    from careful.render import figure as plots

    names = _names(matrix)
    # A figure that is 0 everywhere is not drawn.
    drawn = [one for one in FIGURES if any(values(matrix, one).values())]
    if not drawn:
        raise InputError("nothing was measured: no plot")
    side = max(4.0, 0.9 * len(names))
    size = ((side + 2.2) * len(drawn), side + 1.0)
    whole, [pairs] = plots.grid(1, len(drawn), size=size, widths=[1.0] * len(drawn))
    for pair, one in zip(pairs, drawn, strict=True):
        found = values(matrix, one)
        cells = np.array(
            [[found.get((local, remote), np.nan) for remote in names] for local in names[::-1]],
            dtype=float,
        )
        plots.label(pair, FIGURES[one], "to", "from")
        plots.heat(whole, pair, cells, names, names[::-1], FIGURES[one])
    plots.save(whole, path)

"""Figures of P2's tables."""

from __future__ import annotations

from typing import NamedTuple

from careful.bench.experiments import Cell


class Paper(NamedTuple):
    """P2's figures of a cell, in the table's unit; delta: careful's excess over traditional, %."""

    traditional: float | None
    careful: float | None
    delta: float | None


_NONE = Paper(None, None, None)
#: Columns: nodes; words or rows; traditional, careful, delta without processing, then with it.
_PAPER = {
    "latency": """
        2    1  112.5  84.9 -24.5   113.1   85.6 -24.3
        2 1000  431.7 404.1  -6.4  1094.6 1067.8  -2.5
        2 2000  751.6 724.2  -3.6  2081.1 2053.6  -1.3
        4    1  110.1  86.2 -21.7   110.9   87.1 -21.5
        4 1000  549.7 406.2 -26.3  1192.3 1070.3 -10.2
        4 2000  979.5 726.5 -25.8  2264.3 2058.1  -9.1
        8    1  117.8  95.6 -18.9   118.7   96.6 -18.6
        8 1000  551.9 414.7 -25.0  1196.2 1081.6  -9.6
        8 2000  981.7 735.6 -25.1  2265.6 2065.7  -8.8""",
    "throughput": """
        2    1  0.26 0.33 +27.28  0.26 0.32 +24.04
        2  200  49.8 65.4 +31.15  24.8 25.1  +1.04
        2 1000  95.3 95.5  +0.19  40.0 40.6  +1.66
        2 2000  97.6 97.7  +0.10  43.6 44.0  +0.98
        4    1  0.53 0.68 +29.35  0.53 0.67 +26.02
        4  200  70.6 85.6 +21.33  50.4 62.6 +24.10
        4 1000  94.8 96.9  +2.26  85.5 91.4  +7.01
        4 2000  97.5 98.4  +0.97  95.1 95.1  +0.02
        8    1  0.67 0.78 +17.34  0.67 0.77 +15.64
        8  200  76.7 84.4 +10.11  59.3 68.2 +15.04
        8 1000  96.1 96.6  +0.53  92.9 95.2  +2.44
        8 2000  98.2 98.3  +0.12  96.5 97.3  +0.84""",
    "flood": """
        2    1   2.1  2.2  +5.0   2.1  2.3  +5.8
        2 1000  10.5 11.7 +12.1  15.9 14.2 -10.1
        2 2000  20.7 23.0 +11.2  30.4 27.7  -9.0
        4    1  42.9  2.5 -94.2     -  2.5     -
        4 1000     - 10.5     -     - 15.6     -
        4 2000     - 20.8     -     - 29.2     -
        8    1     -  3.5     -     -  3.5     -
        8 1000     - 10.8     -     - 18.4     -
        8 2000     - 21.0     -     -    -     -""",
    "one-buffer": """
        2 2000  1150  720 -37.0     -    -     -""",
    # For 8 nodes and 32 x 32, P2's delta does not fit P2's times.
    "jacobi": """
        1    8  0.19 0.19     -     -    -     -
        1   16  0.38 0.38     -     -    -     -
        1   32  1.18 1.18     -     -    -     -
        1   64  4.37 4.37     -     -    -     -
        2    8  0.42 0.28 -33.3     -    -     -
        2   16  0.50 0.36 -29.0     -    -     -
        2   32  0.81 0.76  -6.8     -    -     -
        2   64  2.40 2.39  -0.4     -    -     -
        4    8  0.48 0.35 -27.6     -    -     -
        4   16  0.53 0.40 -24.3     -    -     -
        4   32  0.71 0.58 -17.4     -    -     -
        4   64  1.53 1.44  -5.9     -    -     -
        8    8  0.57 0.42 -26.4     -    -     -
        8   16  0.63 0.47 -24.7     -    -     -
        8   32  0.61 0.60 -20.3     -    -     -
        8   64  1.25 1.12 -10.9     -    -     -""",
}


def _read(text: str) -> dict[tuple[int, int, bool], Paper]:
    figures_of = {}
    for line in text.strip().splitlines():
        nodes, size, *rest = line.split()
        figures = [None if one == "-" else float(one) for one in rest]
        for processing in (False, True):
            figures_of[int(nodes), int(size), processing] = Paper(
                *figures[3 * processing : 3 * processing + 3]
            )
    return figures_of


_TABLES = {name: _read(text) for name, text in _PAPER.items()}


def paper(cell: Cell) -> Paper:
    """Returns P2's figures of a cell."""
    name = "flood" if cell.table == "replicated" else cell.table
    return _TABLES.get(name, {}).get((cell.nodes, cell.size, cell.processing), _NONE)

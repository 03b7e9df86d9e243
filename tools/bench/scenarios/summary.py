"""Makes the table of README and `help speed`, the plot and tests/reports/speed.md from a kept run.

`tools/bench/run speed --xdp both --json tests/reports/speed.json` wrote the run. If it is of both
XDP modes, the tables are of native mode and the ratios of both.
Usage: tools/bench/run summary [--from FILE] [PLOT.png]   prints the table, and draws
       tools/bench/run summary --page        writes the tables of tests/reports/speed.md anew
"""

from __future__ import annotations

import json
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from bench_lab import REPORTS
from speed_figures import (
    BOUNDS,
    COPIES,
    DEVICE,
    FIGURES,
    MODELESS,
    OWN,
    QUANTILES,
    SHORT,
    SIZES,
    STREAMS,
    WHO,
    Bound,
    size_text,
)

KEPT = REPORTS / "speed.json"
PAGE = REPORTS / "speed.md"
HEADING = "## A kept run\n"
#: Programs that copy many small files, by figure.
TREES = {
    "tree_careful_s": "carefulctl get -r",
    "tree_rsync_s": "rsync from its daemon",
    "tree_scp_s": "scp -r, without encryption",
}

#: Memory of a process, by its name in /proc.
MEMORY = {
    "VmHWM": "resident, the most so far",
    "RssAnon": "of it its own",
    "HugetlbPages": "huge pages beside it",
}


class Panel(NamedTuple):
    """A comparison: the rounds of each program that does one kind of work."""

    title: str
    unit: str
    series: dict[str, list[float]]


def values(whole: dict[str, Any], figure: str) -> list[float]:
    """Returns the figure of the rounds that have it."""
    return [one for one in whole["rounds"].get(figure, []) if one is not None]


def load(path: Path) -> dict[str, Any]:
    """A kept run: of one in several XDP modes the first, whose `modes` has them all."""
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    first: dict[str, Any] = whole.get("modes", [{}])[0]
    return whole | first


def panels(whole: dict[str, Any]) -> list[Panel]:
    """Careful is the first of each series; those that it is not in are left out."""

    def panel(title: str, unit: str, series: dict[str, str]) -> Panel:
        found = {name: values(whole, figure) for name, figure in series.items()}
        if not found[next(iter(found))]:
            found = {}
        return Panel(title, unit, {name: rounds for name, rounds in found.items() if rounds})

    size = f"{whole['file_bytes'] / (1 << 30):g} GiB"
    all_panels = [
        panel(
            "64-byte request and reply, spinning",
            "µs",
            {
                "careful": "request_us",
                "AF_XDP echo without a protocol": "bare_echo_us",
                "TCP (sockperf)": "tcp_spin_us",
            },
        ),
        panel(
            "8 KiB block",
            "µs",
            {
                "careful": "fetch_us",
                "NBD (nbdkit, libnbd)": "nbd_us",
                "TCP echo (sockperf)": "trip_tcp_spin_8192_p50_us",
            },
        ),
        panel(
            f"file of {size}",
            "Gbit/s",
            {
                "carefulctl get": "get_gbit",
                "AF_XDP stream without a protocol": "bare_stream_gbit",
                "nbdcopy": "nbdcopy_gbit",
                "rsync from its daemon": "rsync_gbit",
            },
        ),
        panel("10,000 files of 4 KiB", "s", {name: figure for figure, name in TREES.items()}),
    ]
    return [one for one in all_panels if one.series]


def table(found: list[Panel]) -> str:
    """Markdown: medians, and careful's ratio to each of the others."""
    lines = ["| | careful | beside | careful / beside |", "|---|---|---|---|"]
    for panel in found:
        (_, ours), *others = panel.series.items()
        own = statistics.median(ours)
        for name, theirs in others:
            other = statistics.median(theirs)
            # The rounds' own, where each has both: as in the manual.
            whole = len(ours) == len(theirs)
            each = [a / b for a, b in zip(ours, theirs, strict=True)] if whole else [own / other]
            lines.append(
                f"| {panel.title} | {own:.3g} {panel.unit} "
                f"| {name}: {other:.3g} {panel.unit} | {statistics.median(each):.2f} |"
            )
    return "\n".join(lines)


def draw(found: list[Panel], path: str) -> None:
    """Medians as bars, rounds as points; each panel has its own unit."""
    from careful.render import figure

    drawn, rows = figure.grid(2, 2, size=(13.0, 6.8), widths=(1, 1))
    axes = [axis for row in rows for axis in row]
    for axis in axes[len(found) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes, found, strict=False):
        for row, (name, rounds) in enumerate(panel.series.items()):
            colour = figure.COLOURS[min(row, 1)]
            axis.barh(row, statistics.median(rounds), color=colour, height=0.6, alpha=0.75)
            axis.plot(rounds, [row] * len(rounds), ".", color="black", markersize=5)
            axis.text(0, row - 0.34, f" {name}", va="bottom", fontsize=12)
        better = "more is better" if panel.unit == "Gbit/s" else "less is better"
        figure.label(axis, panel.title, f"{better} ({panel.unit})", "")
        axis.set_ylim(len(panel.series) - 0.5, -0.75)
        axis.set_yticks([])
    figure.save(drawn, path)


def _cells(*words: str) -> str:
    return f"| {' | '.join(words)} |"


def _head(*words: str) -> list[str]:
    return [_cells(*words), "|" + "---|" * len(words)]


def _places(ratio: float, bound: float | None) -> int:
    """As many as tell a ratio from the bound that it misses."""
    return 3 if bound is not None and round(ratio, 2) == round(bound, 2) else 2


def _device(whole: dict[str, Any], bound: Bound) -> str:
    """The bare device's ratio to the same yardstick, of whole rounds."""
    parts = [whole["rounds"].get(name, []) for name in DEVICE.get(bound.figure, ())]
    beside = whole["rounds"].get(bound.yardstick, [])
    if bound.yardstick in OWN:
        return "-"
    if SHORT[bound.yardstick].startswith("AF_XDP") or not parts or not all(parts):
        return "-"
    rounds = [one for one in zip(beside, *parts, strict=True) if None not in one]
    if not rounds:
        return "-"
    ratio = statistics.median(statistics.mean(own) / other for other, *own in rounds)
    return f"{ratio:.{_places(ratio, bound.bound)}f}"


def _said(one: dict[str, Any]) -> str:
    """A ratio with what it was between, and whether that is within its bound."""
    places = _places(one["ratio"], one["bound"])
    verdict = {True: ": met", False: ": no", None: ""}[one["met"]]
    return f"{one['ratio']:.{places}f} ({one['ratio_min']:.2f} to {one['ratio_max']:.2f}){verdict}"


def _targets(whole: dict[str, Any]) -> list[str]:
    modes = whole.get("modes", [whole])
    names = [one["xdp"] for one in modes] if len(modes) > 1 else ["ratio"]
    lines = _head("careful / beside", *names, "device", "target")
    found = [{(one["figure"], one["yardstick"]): one for one in mode["ratios"]} for mode in modes]
    for bound in BOUNDS:
        pair = (bound.figure, bound.yardstick)
        rows = [one.get(pair) for one in found]
        if not rows[0]:
            continue
        said = [_said(one) if one else "-" for one in rows]
        if bound.figure in MODELESS:
            said[1:] = ["-"] * len(said[1:])
        alone = dict.fromkeys(_device(mode, bound) for mode in modes)
        target = "-"
        if bound.bound is not None:
            places = max(_places(one["ratio"], bound.bound) for one in rows if one)
            target = f"{'≤' if bound.at_most else '≥'} {bound.bound:.{places}f}"
        what = " / ".join(SHORT[name] for name in pair)
        lines.append(_cells(what, *said, ", ".join(alone), target))
    return lines


def _trips(whole: dict[str, Any], nbytes: int) -> list[str]:
    lines = _head(f"{size_text(nbytes)} there and back, µs", *QUANTILES.values())
    for who, text in WHO.items():
        row = [values(whole, f"trip_{who}_{nbytes}_{key}_us") for key in QUANTILES]
        if row[0]:
            lines.append(_cells(text, *(f"{statistics.median(v):.1f}" if v else "-" for v in row)))
    return lines


def _rates(whole: dict[str, Any]) -> list[str]:
    lines = _head("one way", "median", "from", "to")
    for figure, (text, unit) in FIGURES.items():
        found = values(whole, figure)
        if not found or unit not in ("Gbit/s", "1/s"):
            continue
        scale, said = (1e6, "million/s") if unit == "1/s" else (1.0, unit)
        numbers = [one / scale for one in (statistics.median(found), min(found), max(found))]
        cells = (f"{numbers[0]:.2f} {said}", *(f"{n:.2f}" for n in numbers[1:]))
        lines.append(_cells(text.replace(", file to tmpfs", ""), *cells))
    return lines


def _blocks(whole: dict[str, Any]) -> list[str]:
    lines = _head("a block of 8 KiB, µs", "P50", "P99")
    for key in ("fetch", "nbd", "fio"):
        row = [values(whole, f"{key}{quantile}_us") for quantile in ("", "_p99")]
        if row[0]:
            cells = (f"{statistics.median(v):.1f}" if v else "-" for v in row)
            lines.append(_cells(FIGURES[f"{key}_us"][0], *cells))
    return lines


def _trees(whole: dict[str, Any]) -> list[str]:
    lines = _head("10,000 files of 4 KiB, s", "median", "from", "to")
    for figure, text in TREES.items():
        if found := values(whole, figure):
            three = (statistics.median(found), min(found), max(found))
            lines.append(_cells(text, *(f"{one:.2f}" for one in three)))
    return lines


def _memory(whole: dict[str, Any]) -> list[str]:
    lines = _head("a carefuld after `get`, MiB at most", "client", "server")
    for key, text in MEMORY.items():
        sides = [whole.get("memory", {}).get(f"{host}_{key}_KiB") for host in ("h1", "h2")]
        if None not in sides:
            lines.append(_cells(text, *(f"{kib / 1024:.1f}" for kib in sides)))
    return lines


def _modes(whole: dict[str, Any]) -> str:
    """The XDP mode in effect, by program."""
    modes = whole.get("xdp_modes")
    if not modes:
        return ""
    each = {" and ".join(one) for one in modes.values()}
    if len(each) == 1:
        said = f"All programs of careful's ran in {each.pop()} XDP mode"
    else:
        by = (f"{program} {' and '.join(one)}" for program, one in modes.items())
        said = f"XDP modes: {', '.join(by)}"
    return f" {said} (`--xdp {whole['xdp']}`)."


def _costs(whole: dict[str, Any]) -> list[str]:
    lines = _head("core seconds a GiB", "client", "server")
    for key, text in {**COPIES, **STREAMS}.items():
        sides = [values(whole, f"cpu_{key}_{side}_s") for side in ("client", "server")]
        if all(sides):
            name = text.replace(", file to tmpfs", "")
            lines.append(_cells(name, *(f"{statistics.median(one):.2f}" for one in sides)))
    return lines


def section(whole: dict[str, Any]) -> str:
    """The page from the heading on."""
    kernel = ".".join(whole["kernel"].split(".")[:2])
    rounds = max(len(one) for one in whole["rounds"].values())
    said = (
        f"At commit {whole['commit']}, kernel {kernel}, two cores of a shared virtual machine, "
        f"{rounds} rounds, a file of {whole['file_bytes'] / (1 << 30):g} GiB. Each ratio is the "
        "median of the rounds' own, with the least and the largest of them."
    )
    if len(whole.get("modes", [])) > 1:
        said += (
            " Each part ran in both XDP modes in turn, small files in the one that carefuld chose; "
            "the other tables are of native mode."
        )
    else:
        said += _modes(whole)
    parts = [HEADING.rstrip("\n"), textwrap.fill(said, 99), "\n".join(_targets(whole))]
    tables = [_trips(whole, nbytes) for nbytes in SIZES]
    tables += [make(whole) for make in (_blocks, _rates, _trees, _costs, _memory)]
    parts += ["\n".join(lines) for lines in tables if len(lines) > 2]
    return "\n\n".join(parts) + "\n"


def page(whole: dict[str, Any], text: str) -> str:
    """The page with the run's tables."""
    return text.partition(HEADING)[0].rstrip("\n") + "\n\n" + section(whole)


def main() -> int:
    """Status 1: --check, and the page is not of the kept run."""
    asked = sys.argv[1:]
    if asked in (["--page"], ["--check"]):
        whole = load(KEPT)
        old = PAGE.read_text(encoding="utf-8")
        new = page(whole, old)
        if asked == ["--check"]:
            return int(new != old)
        PAGE.write_text(new, encoding="utf-8")
        return 0
    if asked[:1] == ["--from"]:
        found = panels(load(Path(asked[1])))
        asked = asked[2:]
    else:
        found = panels(load(KEPT))
    print(table(found))
    if asked:
        draw(found, asked[0])
    return 0

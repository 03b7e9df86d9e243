"""Tables and paragraphs: unfolded in a pipe, folded at words on a terminal, red for faults."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from careful._abi import ffi
from careful.cli.main import run
from careful.control.checks.check_result import FAIL, OK, Finding
from careful.control.instance import records, status
from careful.render.files.verify import partials
from careful.render.instance import status as report
from careful.render.instance.doctor import findings
from careful.render.tables import alarm, cells, folded, folded_lines, table
from careful.transfer.file.find_partials import PartialFile
from careful.versions import versions
from in_effect import IN_EFFECT, PEER


def shown(**peer: Any) -> str:
    return folded(report.statuses([replace(IN_EFFECT, peers=[replace(PEER, **peer)])], {}))


def effect(found: status.Status) -> str:
    return "\n".join(report.effect(found))


def test_effect__names_the_reserve() -> None:
    assert "reserve" not in effect(IN_EFFECT)
    kept = replace(IN_EFFECT, reserve_buffers=256, reserve_free_buffers=200)
    assert "UMEM" in effect(kept)
    assert "200 of the 256 in reserve free" in effect(kept)


def test_effect__reports_that_a_frame_must_fit_one_buffer() -> None:
    """On Linux 6.1 once only `doctor` said so, not `up`."""
    assert "one buffer" not in effect(IN_EFFECT)
    alone = replace(IN_EFFECT, multibuffer=False, mtu_bytes=1500, frame_bytes=1514)
    (line,) = [one for one in report.effect(alone) if "one buffer" in one]
    assert line.startswith("  frames have at most 1514 bytes: one buffer each. Several buffers")
    short = effect(replace(alone, mtu_bytes=9000, frame_bytes=3520))
    assert "at most 3520 bytes, not the MTU's 9014" in short


def test_effect__names_keys_if_sessions_need_them() -> None:
    assert "no keys" in effect(IN_EFFECT)
    assert "UDP port 51966, keys" in effect(replace(IN_EFFECT, keyed=True))


def narrow(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))


def widest(text: str) -> int:
    return max(map(cells, text.splitlines()))


@pytest.fixture(autouse=True)
def pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the width, since pytest's capture is no terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_status__fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table once wrapped in mid-word at 80 columns."""
    narrow(monkeypatch, columns)
    for peer in ({}, {"address": "fd77::1234:5678:9abc:def0", "buffers_owed": 12, "epochs": 122}):
        text = shown(**peer)
        assert widest(text) <= columns
        words = [*map(str, (*PEER.address.split(), "admitted")), "1000 MiB"]
        assert [one for one in words[1:] if one not in text] == []
        assert str(peer.get("address", PEER.address)) in text
    assert "│" not in text


def test_status__lost_at_which_end() -> None:
    """The losses of both ends were once added under one heading."""
    lines = shown(lost_here_frames=7, lost_there_frames=33).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("peer "))
    head, _, row = lines[at : at + 3]
    assert re.split(r"\s{2,}", head)[-3:] == ["lost here", "lost there", "epochs"]
    assert row.split()[-3:] == [alarm("7"), alarm("33"), "1"]
    assert "\x1b" not in shown()


def test_status__names_the_bound_of_a_window() -> None:
    """There is no such line if the path takes R frames, or loses at random."""
    said = "  window 12 of 64: the path from h2 takes 96 frames at once"
    short = {"window_buffers": 12, "burst_frames": 96}
    assert said in shown(burst="short", **short).splitlines()
    assert "at once" not in shown()
    assert "at once" not in shown(burst="lossy", burst_frames=96)
    assert "at once" not in shown(burst="short", burst_frames=600)


def test_status__reports_dropped_control_messages() -> None:
    said = (
        "frames of h2 arrive, but no control messages: does a firewall of either host drop UDP port"
    )
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown(control_unheard=True))
    assert said in " ".join(plain.split())
    assert "firewall" not in shown()


def test_status__names_peers_with_an_older_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = versions()["wire_version"]
    here = SimpleNamespace(CAREFUL_WIRE_VERSION=wire, CAREFUL_WIRE_MINOR=2)
    monkeypatch.setattr("careful.control.instance.records.lib", here)
    text = " ".join(shown(wire_minor=1).split())
    assert f"h2 speaks wire {wire}.1, this host {wire}.2: " in text
    assert "speaks wire" not in shown(wire_minor=2)


@pytest.mark.parametrize("state", ["stalled", "failed"])
def test_status__stalled_peers_are_red(state: str) -> None:
    assert alarm(state) in shown(state=state)
    assert alarm(f"{state}: no answer in time") in shown(state=state, error="no answer in time")


def test_status__counts_buffers_only_if_there_are_any() -> None:
    assert "kept" not in shown()
    assert re.search(r"credits +kept +sent", shown(buffers_kept=3))


def test_findings__fail_is_red_and_advice_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 60)
    one = Finding("kernel", OK, "Linux 6.1")
    bad = Finding("memlock", FAIL, "64 KiB", "raise it: `ulimit -l unlimited` before `up`")
    assert findings([one, bad]).splitlines() == [
        "ok    kernel     Linux 6.1",
        f"{alarm('FAIL')}  memlock    64 KiB (raise it: `ulimit -l unlimited`",
        "                 before `up`)",
    ]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_plan_classes__fits(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow(monkeypatch, columns)
    assert run(["plan", "--pipeline", "gms", "--classes"]) == 0
    text = capsys.readouterr().out
    assert widest(text) <= columns
    assert text.count("fixed ") == 14 + 1
    assert "125687.6" in text


def test_partials__a_name_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name once ended in an ellipsis after 26 characters, and could not be copied."""
    name = "h2:project/results/2026/.measurements.careful-0123456789abcdef.part"
    one = PartialFile(
        name, name, 97 << 10, 32 << 10, "h2:project/results/2026/measurements", 120.0, "resumable"
    )
    assert name in partials([one])
    narrow(monkeypatch, 80)
    text = partials([one, one])
    assert text.count(name) == 2
    assert widest(text) <= 80
    assert re.search(r"^  kept +32 KiB of 97 KiB$", text, re.M)


def test_table__in_a_pipe_every_row_is_a_line() -> None:
    columns = [f"figure_{number}_us_per_KiB" for number in range(8)]
    rows = [["123.456 ±0.001", *["word " * 60] * 7]] * 3
    lines = table("what", columns, rows).splitlines()
    assert (lines[0], lines[1].split(), len(lines)) == ("what", columns, 6)
    assert lines[3].count("word") == 420


def test_table__headings_fold_first_then_texts_then_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, rows = ("name", "busy (µs)", "said"), [("a", 1.5, "two words"), ("漢", 12.25, "")]
    narrow(monkeypatch, 26)
    assert table("", columns, rows).splitlines() == [
        "name  busy (µs)  said",
        "──────────────────────────",
        "a          1.50  two words",
        "漢         12.2",
    ]
    narrow(monkeypatch, 22)
    assert table("", columns, rows).splitlines() == [
        "      busy",
        "name  (µs)  said",
        "─────────────────────",
        "a     1.50  two words",
        "漢    12.2",
    ]
    narrow(monkeypatch, 17)
    assert table("", columns, rows).splitlines() == [
        "      busy",
        "name  (µs)  said",
        "─────────────────",
        "a     1.50  two",
        "            words",
        "漢    12.2",
    ]
    narrow(monkeypatch, 30)
    wider = ("name", "", "busy (µs)", "read", "written", "said")
    assert table("", wider, [["a", "as is", 1.5, 2, 3000000, "two words in it"]]).splitlines() == [
        "name a",
        "             as is",
        "  busy (µs)  1.50",
        "  read       2",
        "  written    3000000",
        "  said       two words in it",
    ]


def test_folded_lines__ask_the_terminal_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal was once asked for each name of a listing, a fifth of the time of `ls`."""
    asked = []

    def one(_: int) -> os.terminal_size:
        asked.append(1)
        return os.terminal_size((12, 24))

    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(os, "get_terminal_size", one)
    names = ["a", "ab " * 5, "\u4e00" * 5 + " a b", "\u4e00" * 7]
    lines = list(folded_lines(names * 100))
    assert lines == [line for name in names for line in folded(name).split("\n")] * 100
    assert max(map(cells, lines[:-1])) <= 14
    assert len(asked) == 1 + len(names)
    whole = table("", ["name", "value"], [["one two three four", "x" * 20]] * 100)
    assert whole.count("name one") == 100
    assert len(asked) <= 3 + len(names)


def test_folded__between_words_and_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "one two  three\n  four five six\n" + "x" * 30
    assert folded(text) == text
    narrow(monkeypatch, 12)
    assert folded(text).splitlines() == ["one two", "  three", "  four five", "    six", "x" * 30]
    assert folded(alarm("red all over the line")).splitlines() == [
        alarm("red all over"),
        f"  {alarm('the line')}",
    ]


def test_printable_text__of_a_peer_is_no_command_to_a_terminal() -> None:
    """For example a peer's name, also as a slow client."""
    name = ffi.new("char[32]", b"\x1b[31mred\xc2\x9b\x9b")
    assert records.printable_text(name) == "\\x1b[31mred\\x9b\ufffd"
    one = replace(PEER, node=None, name=records.printable_text(name), withholding=True)
    found = replace(IN_EFFECT, peers=[one])
    assert all(one.isprintable() for one in status.slow_clients(found))

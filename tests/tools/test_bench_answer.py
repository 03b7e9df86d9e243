"""Tests the result of tools/bench answer: when a push answered a change, and whether in time."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from tool_module import load_tool

CHANGED = 1000.0
CLASS = 6


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("bench answer", monkeypatch)


def decision(after_s: float, what: str, *counts: int, klass: int = CLASS) -> dict[str, Any]:
    ab = {"ab": {"before_count": counts[0], "after_count": counts[1]}} if counts else {}
    return {"at_s": CHANGED + after_s, "what": what, "why": "", "classes": [{"class": klass, **ab}]}


def ran(*decisions: dict[str, Any], every_s: float = 0.1) -> dict[str, Any]:
    """Returns a run with a message each `every_s`, from 5 s before the change on, and an earlier
    push.
    """
    counts = [(CHANGED - 5 + every_s * k, k + 1) for k in range(int(20 / every_s))]
    before = [decision(-4, "changed"), decision(-3, "kept", 30, 30)]
    return {
        "changed_s": CHANGED,
        "put_back_s": None,
        "decisions": [*before, *decisions],
        "counts": counts,
    }


def test_times__from_the_change_to_each_step(answer: ModuleType) -> None:
    said, pushed = decision(1.25, "path changed"), decision(1.45, "changed")
    other, verdict = decision(2.05, "kept", 30, 30, klass=3), decision(3.05, "kept", 31, 35)
    run = ran(said, pushed, other, verdict)
    found = answer.times(run)
    assert found["said"] == {"after_s": pytest.approx(1.25), "messages": 12}
    assert found["push"] == {"after_s": pytest.approx(1.45), "messages": 14}
    assert answer.row_of("rate", run) == {"kind": "rate", "answer": "push", **found}


@pytest.mark.parametrize(
    ("after_s", "every_s", "in_time"),
    [(4.9, 0.001, True), (5.1, 0.001, False), (5.0, 0.09, True), (6.0, 0.09, False)],
)
def test_in_time__five_seconds_or_thirty_messages_an_arm(
    answer: ModuleType, after_s: float, every_s: float, in_time: bool
) -> None:
    run = ran(decision(after_s, "changed"), every_s=every_s)
    assert answer.in_time(answer.row_of("rate", run)) is in_time


def test_in_time__that_nothing_gains_is_an_answer_and_silence_is_none(answer: ModuleType) -> None:
    steps = decision(1.0, "path changed"), decision(1.1, "nothing to change")
    some, silent, half = (answer.row_of("rate", ran(*some)) for some in (steps, (), steps[:1]))
    assert answer.in_time(some)
    assert some.keys() == {"kind", "answer", "said", "nothing"}
    assert not answer.in_time(silent)
    assert not answer.in_time(half)


def test_times__plans_that_are_back_at_once(answer: ModuleType) -> None:
    run = ran(decision(4.0, "path as before")) | {"put_back_s": CHANGED + 0.5}
    row = answer.row_of("xdp", run)
    assert row["push"]["after_s"] == pytest.approx(0.5)
    assert row["answer"] == "said"


def test_report__counts_those_in_time(
    answer: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    soon, late = (answer.row_of("overhead", ran(decision(at, "changed"))) for at in (1.0, 9.0))
    assert answer.report({"runs": [soon, soon]})
    assert not answer.report({"runs": [soon, late]})
    assert "1 of 2" in capsys.readouterr().out

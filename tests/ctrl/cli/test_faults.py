"""Errors of carefulctl: one line for a user's mistake, a traceback for a fault of the program."""

from __future__ import annotations

import json

import pytest
from careful.cli.exit_status import Exit
from careful.cli.main import run
from careful.errors import InputError
from careful.render.tuning import plan as report

PLAN = ["plan", "--pipeline", "trapeze", "--bytes", "1MiB"]


def fail(patch: pytest.MonkeyPatch, error: Exception) -> None:
    """Makes the plan's computation raise `error`."""

    def answer(*_: object) -> None:
        raise error

    patch.setattr(report.Request, "answer", answer)


@pytest.mark.parametrize("error", [ValueError("no such value"), KeyError("no such value")])
def test_run__a_fault_prints_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    fail(monkeypatch, error)
    assert run([*PLAN, "--json"]) == Exit.BROKEN == 70
    output = capsys.readouterr()
    assert "Traceback" in output.err
    assert "in answer" in output.err
    last = output.err.splitlines()[-1]
    assert last.startswith("carefulctl: a fault in carefulctl, please report it: ")
    assert "no such value" in last
    assert json.loads(output.out)["exit_status"] == 70


def test_run__input_that_cannot_be_used_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(monkeypatch, InputError("no such value"))
    assert run(PLAN) == Exit.FAILED
    assert capsys.readouterr().err == "carefulctl: no such value\n"

"""Tests which places tools/lint/prose.py finds, and which it leaves alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "lint"))

import prose

C = """/*
 * Whether the frame is ours. Reports nothing else.
 */
int f(void); // Of two, the
// second: What is left.
"""
PYTHON = '''"""A module."""

#: What it counts.
X = option(help="Whether to wait. Of no use alone.")
WAIT = "Where there is a wait."
option("-a --all", str, "Of all.")(flag("-b", f"What waits for {X}."))
command(help=WAIT)


def f() -> None:
    """Returns what was asked for."""
'''


SCRIPT = """#!/bin/sh
# Waits for the host.
# Of no use alone.
wait # not read
  # Whether it has ended.
"""


@pytest.mark.parametrize(
    ("name", "source", "lines"),
    [
        ("a.c", C, [1, 4, 5]),
        ("a.py", PYTHON, [3, 4, 4, 6, 6, 7]),
        ("a", SCRIPT, [2, 5]),
        ("a.toml", SCRIPT, [2, 5]),
        ("a.md", "# T\n\nWhere there is none, wait.\n\n```\nWhether is code.\n```\n", [3]),
    ],
)
def test_faults__finds_each_start(name: str, source: str, lines: list[int]) -> None:
    found = [(kind, line) for kind, line, _ in prose.faults(name, source)]
    assert sorted(found) == [("sentence starts", line) for line in lines]


def test_faults__long_sentences_and_pages() -> None:
    words = "word " * 36
    page = f"{words}end.\n\n" * 30
    found = [kind for kind, _, _ in prose.faults("ctrl/careful/man/x.md", page)]
    assert found.count("long sentences") == 30
    assert found.count("long pages") == 1
    assert not list(prose.faults("x.md", "word " * 34 + "end."))

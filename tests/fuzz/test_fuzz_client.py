"""Runs the kept inputs of hostile_answers.py, and a few others."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import hostile_answers

KEPT = sorted(hostile_answers.CORPUS.iterdir())


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_client__kept_inputs(path):
    hostile_answers.check(path.read_bytes())


def test_client__other_inputs():
    for data in islice(hostile_answers.inputs(1), 200):
        hostile_answers.check(data)

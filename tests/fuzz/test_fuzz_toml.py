"""Runs the kept inputs of toml_readers.py, and a few mutations of them."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import toml_readers

KEPT = sorted(toml_readers.CORPUS.iterdir())


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_toml__kept_inputs(path):
    toml_readers.check(path.read_bytes())


def test_toml__mutations_are_taken_or_refused_by_one_line():
    for data in islice(toml_readers.inputs(1, toml_readers.kept()), 500):
        toml_readers.check(data)

"""Importing this makes sure that what runs is the project's own Python, which has careful."""

from __future__ import annotations

import os
import sys

from bench_lab import ROOT

if sys.prefix != str(ROOT / ".venv"):
    python = str(ROOT / ".venv" / "bin" / "python")
    os.execv(python, [python, *sys.argv])

#!/usr/bin/env python3
"""Fuzzes a client with a server's answers, by atheris: `fuzz_client.py [-OPTION…] FOLDER…`.

The options are libFuzzer's.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["careful"]):
    import hostile_answers

atheris.Setup(sys.argv, hostile_answers.check)
atheris.Fuzz()

#!/usr/bin/env python3
"""Fuzzes what a client makes of a server's answers, by way of atheris: `fuzz_client.py [-OPTION…]
FOLDER…`; the options are libFuzzer's."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["careful"]):
    import hostile_answers

atheris.Setup(sys.argv, hostile_answers.check)
atheris.Fuzz()

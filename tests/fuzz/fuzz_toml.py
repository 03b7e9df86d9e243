#!/usr/bin/env python3
"""Fuzzes the readers of TOML by atheris (libFuzzer): `fuzz_toml.py [-OPTION…] FOLDER…`.

The options are libFuzzer's. Half of the inputs are mutated by lines and values
(toml_readers.mutate()), the others by libFuzzer.
"""

from __future__ import annotations

import random
import sys

import atheris

with atheris.instrument_imports(include=["tomllib", "json.decoder", "careful", "toml_readers"]):
    import toml_readers

SEEDS = toml_readers.kept()


def mutated(data: bytes, max_bytes: int, seed: int) -> bytes:
    """Returns the next input after `data`."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return atheris.Mutate(data, max_bytes)
    return toml_readers.mutate(data, SEEDS, rng)[:max_bytes]


atheris.Setup(sys.argv, toml_readers.check, custom_mutator=mutated)
atheris.Fuzz()

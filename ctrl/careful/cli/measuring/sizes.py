"""Reads the pipeline that an option of a computing command names."""

from __future__ import annotations

import sys
from dataclasses import replace

from careful.errors import InputError, WithheldError
from careful.model.blackbox import BlackBox
from careful.model.files import load_measurement, parse_measurement
from careful.model.measurements import Measurement, combined
from careful.model.stages import Pipeline


def read_source(*names: str) -> Pipeline | BlackBox:
    """Reads each `--pipeline`: a file, a shipped pipeline, or `-` for stdin. Combines several.

    A file that withholds figures is left out if another one is there; the result says so. Raises
    WithheldError if no file is left.
    """
    found, lacking = [], []
    for name in names:
        try:
            found.append(_read(name))
        except WithheldError as error:
            lacking.append(error)
    if not found:
        raise lacking[0]
    made = combined(found)
    left_out = [f"left out: {error}" for error in lacking]
    if isinstance(made, BlackBox):
        return replace(made, unknown=(*made.unknown, *left_out))
    return replace(made, rests_on="; ".join(filter(None, [made.rests_on, *left_out])))


def _read(name: str) -> Measurement:
    if name != "-":
        return load_measurement(name)
    try:
        return parse_measurement(sys.stdin.read(), "stdin")
    except UnicodeDecodeError:
        raise InputError("stdin: not text") from None


def read_pipeline(name: str) -> Pipeline:
    """Returns a pipeline like read_source(), for commands that need the stages themselves."""
    source = read_source(name)
    if isinstance(source, Pipeline):
        return source
    raise InputError(
        f"{name}: a black-box measurement has no stages: only `plan --strategy fixed` uses it"
    )

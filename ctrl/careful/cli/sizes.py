"""Reads the pipeline that an option of a computing command names."""

from __future__ import annotations

import sys

from careful.cli.params import BYTES, BYTES_LIST
from careful.errors import InputError
from careful.model.blackbox import BlackBox
from careful.model.files import load_pipeline, parse_source
from careful.model.stages import Pipeline

__all__ = ["BYTES", "BYTES_LIST", "read_pipeline", "read_source"]


def read_source(name: str) -> Pipeline | BlackBox:
    """Reads `--pipeline`: a file, a shipped pipeline, or `-` for stdin."""
    if name != "-":
        return load_pipeline(name)
    try:
        return parse_source(sys.stdin.read(), "stdin")
    except UnicodeDecodeError:
        raise InputError("stdin: not text") from None


def read_pipeline(name: str) -> Pipeline:
    """Like read_source(), for commands that need the stages themselves."""
    source = read_source(name)
    if isinstance(source, Pipeline):
        return source
    raise InputError(
        f"{name}: a black-box measurement has no stages: only `plan --strategy fixed` uses it"
    )

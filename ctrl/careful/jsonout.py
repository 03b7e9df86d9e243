"""The one JSON object a command prints with --json: a schema number, inputs, figures."""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

SCHEMA = 1


def document(
    command: str, inputs: dict[str, Any], figures: dict[str, Any], *, compact: bool = False
) -> str:
    """The object as text, keys in order: schema, command, inputs, then the figures.

    inputs: what the user gave, echoed; figures: names end in their unit. numpy scalars and
    arrays become numbers and lists; infinities become null, which JSON lacks a word for.
    compact: in one line, for a file of many figures.
    """
    whole = {"schema": SCHEMA, "command": command, "inputs": inputs, **figures}
    how: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    text = json.dumps(_plain(whole), ensure_ascii=False, allow_nan=False, **how)
    try:
        text.encode()
    except UnicodeEncodeError:  # a name that is no UTF-8: its bytes as \udcXX
        return json.dumps(_plain(whole), allow_nan=False, **how)
    return text


def pieces(
    command: str, inputs: dict[str, Any], figures: dict[str, Any], name: str, items: Iterable[Any]
) -> Iterator[str]:
    """The same as document(), of figures that end with a list, and with no more in memory than
    one of its items.

    name: of the list.
    """
    whole = document(command, inputs, {**figures, name: []})
    yield whole.removesuffix("]\n}")
    comma = ""
    for item in items:
        text = json.dumps(_plain(item), indent=2, ensure_ascii=False, allow_nan=False)
        yield comma + "\n" + textwrap.indent(text, "    ")
        comma = ","
    yield ("\n  " if comma else "") + "]\n}"


def write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all; raises OSError.

    What is not a regular file (a pipe, /dev/null) is written to, not replaced.
    """
    path = path.resolve()  # a link stays one
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _plain(value: Any) -> Any:
    """Types that JSON knows."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):  # numpy's, without importing it for commands that have none
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

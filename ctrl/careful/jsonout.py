"""The one JSON object a command prints with --json: a schema number, inputs, figures."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SCHEMA = 1
#: An object of JSON or TOML from outside: whoever reads an entry checks it, or lets it fail.
Json = dict[str, Any]


def document(
    command: str,
    inputs: Mapping[str, object],
    figures: Mapping[str, object],
    *,
    compact: bool = False,
) -> str:
    """The object as text, keys in order: schema, command, inputs, then the figures.

    inputs: what the user gave, echoed; figures: names end in their unit. numpy scalars and
    arrays become numbers and lists; infinities become null, which JSON lacks a word for.
    compact: in one line, for a file of many figures.
    """
    whole = {"schema": SCHEMA, "command": command, "inputs": inputs, **figures}
    how: Json = {"separators": (",", ":")} if compact else {"indent": 2}
    text = json.dumps(plain(whole), ensure_ascii=False, allow_nan=False, **how)
    try:
        text.encode()
    except UnicodeEncodeError:  # a name that is no UTF-8: its bytes as \udcXX
        return json.dumps(plain(whole), allow_nan=False, **how)
    return text


def pieces(
    command: str,
    inputs: Mapping[str, object],
    figures: Mapping[str, object],
    name: str,
    items: Iterable[object],
) -> Iterator[str]:
    """The same as document(), of figures that end with a list, and with no more in memory than
    one of its items.

    name: of the list.
    """
    whole = document(command, inputs, {**figures, name: []})
    yield whole.removesuffix("]\n}")
    comma = ""
    for item in items:
        text = json.dumps(plain(item), indent=2, ensure_ascii=False, allow_nan=False)
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


def plain(value: Any) -> Any:
    """Returns a value in types that JSON knows; a dataclass becomes an object of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # numpy's, without importing it for commands that have none
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

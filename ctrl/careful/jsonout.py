"""The one JSON object that a command prints with --json: a schema number, inputs, figures."""

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
#: A JSON or TOML object from outside: its reader checks each entry, or fails.
Json = dict[str, Any]


def document(
    command: str,
    inputs: Mapping[str, object],
    figures: Mapping[str, object],
    *,
    compact: bool = False,
) -> str:
    """Returns the object as text, keys in order: schema, command, inputs, then the figures.

    inputs: the user's input, echoed; figures: names end in their unit. numpy scalars and arrays
    become numbers and lists; infinities become null, since JSON has none. compact: in one line.
    """
    whole = {"schema": SCHEMA, "command": command, "inputs": inputs, **figures}
    how: Json = {"separators": (",", ":")} if compact else {"indent": 2}
    text = json.dumps(plain(whole), ensure_ascii=False, allow_nan=False, **how)
    try:
        text.encode()
    except UnicodeEncodeError:  # a name that is not UTF-8: its bytes as \udcXX
        return json.dumps(plain(whole), allow_nan=False, **how)
    return text


def pieces(
    command: str,
    inputs: Mapping[str, object],
    figures: Mapping[str, object],
    name: str,
    items: Iterable[object],
) -> Iterator[str]:
    """Yields document() in pieces, for figures that end with a list; holds one item at a time.

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
    """Writes a file as a whole or not at all; raises OSError.

    A path that is no regular file (a pipe, /dev/null) is written to, not replaced.
    """
    path = path.resolve()  # a link stays a link
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
    """Returns a value in types of JSON; a dataclass becomes an object of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # numpy's, without importing it for commands that need none
        return plain(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""Messages for people: each starts lower-case or with a name, and is in plain words.

`pytest -s tests/tools/test_messages.py` prints all of them, to be read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
#: Calls in C whose first string is a message.
_C_CALL = re.compile(r"\b(?:log_line|explain|refuse\w*|refused|snprintf)\(")
_C_STRING = re.compile(r"""[^"';]{0,160}?((?:"(?:[^"\\]|\\.)*"\s*(?:PRI\w+\s*)?)+)""")
#: A name that may come first: an option, a format, a quote, or capitals (MTU, LISTEN_FDS).
_NAME = re.compile(r"[^A-Za-z]|[A-Z0-9_]{2,}\b|Linux |UDP |BLAKE3")
#: Words that a reader has to turn round, and what to write instead.
_ODD = {
    r"(?<!there )\b(?:is|are) no (?!longer)": "is not a …",
    r"\bis none\b": "is not a …, or: there is no …",
    r"\b[Ww]hoever\b": "anyone who",
    r"\bany more\b": "no longer",
    r"\bbeside\b": "next to",
    r"\bnobody hears\b": "cannot tell",
    r"\btakes (?:a|keys|two|one)\b": "needs",
    r"\bbehind it\b": "after it",
    r"^(?:of|who|whose|what|where|whether) (?!is not)": "name the thing",
}
WORDS_MAX = 35


class Message(NamedTuple):
    """A message in the source, with {} or % in place of values."""

    path: str
    line: int
    text: str


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return ""


def _of_python(path: str, source: str) -> Iterator[Message]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            values = [*node.exc.args, *(keyword.value for keyword in node.exc.keywords)]
            texts = [text for text in map(_text, values) if " " in text]
            if texts:  # the subject, if there is one, comes after the text
                yield Message(path, node.lineno, texts[0])


def _of_c(path: str, source: str) -> Iterator[Message]:
    for call in _C_CALL.finditer(source):
        strings = _C_STRING.match(source, call.end())
        if strings:
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings[1]))
            if re.search(r"[a-z]{2,} [a-z]{2,}", text):
                yield Message(path, source.count("\n", 0, call.start()) + 1, text)


def messages() -> list[Message]:
    """Returns the messages of exceptions in Python, and those of carefuld and libcareful in C."""
    found: list[Message] = []
    for path in sorted((ROOT / "ctrl").rglob("*.py")):
        found += _of_python(str(path.relative_to(ROOT)), path.read_text())
    for path in sorted((ROOT / "datapath").rglob("*.c")):
        found += _of_c(str(path.relative_to(ROOT)), path.read_text())
    return found


def test_messages__are_plain() -> None:
    """Lower-case or a name first, no full stop at the end, no long sentence, no odd word."""
    found = messages()
    faults = []
    for one in found:
        where = f"{one.path}:{one.line}: {one.text}"
        print(where)
        start = one.text.lstrip("{}:; ")
        if start[:1].isupper() and not _NAME.match(start):
            faults.append(f"{where}\n    begins with a capital")
        if one.text.rstrip().endswith("."):
            faults.append(f"{where}\n    ends with a full stop")
        if max(len(part.split()) for part in re.split(r"[.;:] ", one.text)) > WORDS_MAX:
            faults.append(f"{where}\n    has more than {WORDS_MAX} words")
        faults += [
            f"{where}\n    better: {better}"
            for odd, better in _ODD.items()
            if re.search(odd, one.text)
        ]
    assert len(found) > 400
    assert any("carefuld is not running" in one.text for one in found)
    assert not faults, "\n".join(faults)

#!/usr/bin/env python3
"""Checks the prose of comments, docstrings, help and manual pages.

Prints sentences that begin with a word that makes a reader turn them round (Of, Who, Whose,
What, Where, Whether), sentences of more than 35 words, and pages of more than 1,000 words.
Ends with 1 if there are any.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

WORDS_MAX, PAGE_MAX = 35, 1000
_START = re.compile(r"(?:Of|Who|Whose|Whoever|What|Where|Whether) [a-z]")
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z`\"(])")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
#: Lines of a comment that are a table, a list of options or code.
_APART = re.compile(r"^\s*(?:[|$>#=+]|[-*] |\w+\(|@\w+:|\d+\. |\S.*\S {2,}\S)")

Text = tuple[int, str]


def c_texts(source: str) -> Iterator[Text]:
    """Yields line and text of each comment of a C file; // lines that follow are one."""
    for match in _C_COMMENT.finditer(source):
        lines = [re.sub(r"^\s*(?:/\*+|\*+/?|//)", "", one) for one in match[0].splitlines()]
        yield source.count("\n", 0, match.start()) + 1, "\n".join(lines).replace("*/", "")


def python_texts(source: str) -> Iterator[Text]:
    """Yields line and text of each docstring, comment and help text of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text
        elif (
            isinstance(node, ast.keyword)
            and node.arg in ("help", "short_help")
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.lineno, node.value.value
    before = 0
    lines: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and token.start[0] != before + 1:
            yield before - len(lines) + 1, "\n".join(lines)
            lines = []
        before = token.start[0]
        lines.append(token.string.lstrip("#: "))
    if lines:
        yield before - len(lines) + 1, "\n".join(lines)


def markdown_texts(source: str) -> Iterator[Text]:
    """Yields line and text of each paragraph of a page; not its code and tables."""
    line, is_code = 1, False
    for part in source.split("\n\n"):
        fences = part.count("```")
        if not is_code and not fences:
            yield line, part
        is_code ^= fences % 2 == 1
        line += part.count("\n") + 2


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a text: tables, lists of names and code end one."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|$>#]|@?\w+:|\d+\. ))", text):
        lines = ("\0" if _APART.match(one) else one for one in paragraph.splitlines())
        for words in " ".join(lines).split("\0"):
            yield from filter(None, map(str.strip, _SENTENCE.split(" ".join(words.split()))))


def faults(name: str, source: str) -> Iterator[tuple[str, int, str]]:
    """Yields kind, line and sentence of each fault of a file."""
    texts = {".c": c_texts, ".h": c_texts, ".py": python_texts, "": python_texts}.get(
        Path(name).suffix, markdown_texts
    )
    for line, text in texts(source):
        for one in sentences(text):
            if _START.match(one):
                yield "sentence starts", line, one
            if len(one.split()) > WORDS_MAX:
                yield "long sentences", line, one
    if name.startswith("ctrl/careful/man/"):
        count = len(re.findall(r"\S*\w\S*", source))  # the bars of tables are no words
        if count > PAGE_MAX:
            yield "long pages", 1, f"{count} words"


def is_ours(path: Path) -> bool:
    """Reports whether the file has prose that is checked."""
    if path.suffix in (".c", ".h", ".py", ".md"):
        return path.is_file()
    return not path.suffix and path.is_file() and b"python3" in path.read_bytes()[:40]


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = [
        f"{name}:{line}: {kind}: {sentence[:100]}"
        for name in filter(None, listed.stdout.split("\0"))
        if is_ours(ROOT / name)
        for kind, line, sentence in faults(name, (ROOT / name).read_text())
    ]
    print("\n".join(found) or "no long sentence or page, none that begins badly")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

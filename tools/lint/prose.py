#!/usr/bin/env python3
"""Checks the prose of code, scripts, help and manual pages.

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
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

WORDS_MAX, PAGE_MAX = 35, 1000
_START = re.compile(r"(?:Of|Who|Whose|Whoever|What|Where|Whether) [a-z]")
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z`\"(])")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
#: Lines of a comment that are a table, a list of options or code.
_APART = re.compile(r"^\s*(?:[|$>#=+]|[-*] |\w+\(|@\w+:|\d+\. |\S.*\S {2,}\S)")

#: Functions that declare options, and the place of the help among their arguments.
_HELP_AT = {"option": 2, "flag": 1, "_option": 0, "_choice": 0, "_number": 0, "_buffers": 0}

Text = tuple[int, str]


def c_texts(source: str) -> Iterator[Text]:
    """Yields line and text of each comment of a C file; // lines that follow are one."""
    for match in _C_COMMENT.finditer(source):
        lines = [re.sub(r"^\s*(?:/\*+|\*+/?|//)", "", one) for one in match[0].splitlines()]
        yield source.count("\n", 0, match.start()) + 1, "\n".join(lines).replace("*/", "")


def _string(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """Returns the text of a string, a sum of strings or a constant; {} stands for a value."""
    if isinstance(node, ast.Name) and node.id in constants:
        return _string(constants[node.id], {})
    if isinstance(node, ast.JoinedStr):
        return "".join(_string(one, {}) or "{}" for one in node.values)
    if isinstance(node, ast.BinOp):
        return _string(node.left, constants) + _string(node.right, constants)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _help(call: ast.Call) -> list[ast.expr]:
    """Returns the help among the arguments of a call."""
    found = [one.value for one in call.keywords if one.arg in ("help", "short_help")]
    at = _HELP_AT.get(call.func.id) if isinstance(call.func, ast.Name) else None
    return found if at is None else found + call.args[at : at + 1]


def python_texts(source: str) -> Iterator[Text]:
    """Yields line and text of each docstring, comment and help text of a Python file."""
    tree = ast.parse(source)
    assigned = [one for one in tree.body if isinstance(one, ast.Assign)]
    constants = {
        name.id: one.value for one in assigned for name in one.targets if isinstance(name, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text
        elif isinstance(node, ast.Call):
            for one in _help(node):
                yield one.lineno, _string(one, constants)
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


def script_texts(source: str) -> Iterator[Text]:
    """Yields line and text of the comments that fill lines of a script, TOML or CMake file."""
    lines: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if re.match(r"\s*#(?!!)", line):
            lines.append(re.sub(r"^\s*#+ ?", "", line))
        elif lines:
            yield number - len(lines), "\n".join(lines)
            lines = []


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


_READERS: dict[str, Callable[[str], Iterator[Text]]] = {
    ".c": c_texts,
    ".h": c_texts,
    ".py": python_texts,
    ".md": markdown_texts,
    **dict.fromkeys((".sh", ".toml", ".cmake", "CMakeLists.txt", ".clang-tidy"), script_texts),
}


def reader(path: Path, first_line: str) -> Callable[[str], Iterator[Text]] | None:
    """Returns the function that finds the prose of a file; None for a file that is not checked."""
    found = _READERS.get(path.suffix) or _READERS.get(path.name)
    if found or not first_line.startswith("#!"):
        return found
    if "python3" in first_line:
        return python_texts
    return script_texts if first_line.endswith("sh") else None


def faults(name: str, source: str) -> Iterator[tuple[str, int, str]]:
    """Yields kind, line and sentence of each fault of a file."""
    texts = reader(Path(name), source.partition("\n")[0])
    for line, text in texts(source) if texts else ():
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
    if not path.is_file() or path.is_relative_to(ROOT / "tests" / "fuzz" / "corpus"):
        return False
    with path.open("rb") as file:
        first_line = file.readline(80).decode(errors="replace").rstrip("\n")
    return reader(path, first_line) is not None


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

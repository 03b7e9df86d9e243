"""Messages for people: each starts lower-case or with a name, and is in plain words.

`pytest -s tests/tools/test_messages.py` prints all of them, to be read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Calls in C whose first string is a message.
_C_CALL = re.compile(
    r"\b(?:log_line|explain|refuse\w*|refused|snprintf)\("
    r'|\bexplain_option\([^";]+"\w+"(?: : "\w+")?,'
)
_C_STRING = re.compile(r"""[^"';]{0,160}?((?:"(?:[^"\\]|\\.)*"\s*(?:PRI\w+\s*)?)+)""")
#: Calls in Python that show their strings: findings, notes and warnings, refusals, errors.
_CALL = re.compile(
    r"(?:^|\.)(?:_?[A-Z]\w*(?:Error|Exception|BadParameter)|Finding|ok|_?warn|fail|unknown|note"
    r"|_?say|say_folded|echo|_?notes\.append|error\.add)$"
)
#: Calls whose strings are help, which begins with a capital and ends with a full stop.
_HELP = re.compile(r"(?:^|\.)(?:_option|_choice|_number|_buffers|add_argument|ArgumentParser)$")
#: Folders whose other strings may be help, titles and cells of tables.
_WITH_OTHER_TEXTS = tuple(f"ctrl/careful/{one}/" for one in ("bench", "cli", "render"))
_WORDS = re.compile(r"[a-z]{2,}[,;:]? [a-z]")
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
}
_START = re.compile(r"(?:of|who|whose|what|where|whether) (?!is not)")
WORDS_MAX = 35
#: Words for the edges alone: an option of a command line, carefulctl or one of its commands.
_COMMAND_LINE = re.compile(r"--[a-z]|carefulctl|`(?:up|down|status|doctor)`")


class Message(NamedTuple):
    """A message in the source, with {} or % in place of values.

    is_line: it is a line of its own; help, titles and cells of tables are not.
    """

    path: str
    line: int
    text: str
    is_line: bool = True


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return ""


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """Returns the expressions that are assigned to each name of a module."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        value = getattr(node, "value", None)
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and value:
            for name in (one for target in targets for one in ast.walk(target)):
                if isinstance(name, ast.Name):
                    found.setdefault(name.id, []).append(value)
    return found


def _shown(tree: ast.Module) -> set[ast.AST]:
    """Returns the nodes of what calls show, also by way of variables."""
    assigned, names, found = _assigned(tree), set[str](), set[ast.AST]()
    waiting: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _CALL.search(ast.unparse(node.func)):
            waiting += [*node.args, *(one.value for one in node.keywords)]
    while waiting:
        for node in ast.walk(waiting.pop()):
            found.add(node)
            if isinstance(node, ast.Name) and node.id not in names:
                names.add(node.id)
                waiting += assigned.get(node.id, [])
    return found


def _apart(tree: ast.Module) -> set[ast.AST]:
    """Returns the nodes of docstrings, help and comparisons, and the parts of longer strings."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(node.value)
        elif isinstance(node, ast.Compare) or (
            isinstance(node, ast.Call) and _HELP.search(ast.unparse(node.func))
        ):
            found.update(ast.walk(node))
        elif isinstance(node, (ast.JoinedStr, ast.BinOp)) and _text(node):
            found.update(one for one in ast.iter_child_nodes(node) if _text(one))
    return found


def _of_python(path: str, source: str) -> Iterator[Message]:
    tree = ast.parse(source)
    shown, apart = _shown(tree), _apart(tree)
    for node in ast.walk(tree):
        text = _text(node)
        is_prose = _WORDS.search(text) and "\n" not in text.strip() and not text.startswith("#")
        if is_prose and node not in apart:
            is_line = node in shown or not path.startswith(_WITH_OTHER_TEXTS)
            yield Message(path, getattr(node, "lineno", 0), text, is_line)


def _of_c(path: str, source: str) -> Iterator[Message]:
    for call in _C_CALL.finditer(source):
        strings = _C_STRING.match(source, call.end())
        if strings:
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings[1]))
            if re.search(r"[a-z]{2,} [a-z]{2,}", text):
                yield Message(path, source.count("\n", 0, call.start()) + 1, text)


def messages() -> list[Message]:
    """Returns the messages of the Python package, and those of carefuld and libcareful in C."""
    found: list[Message] = []
    for path in sorted((ROOT / "ctrl").rglob("*.py")):
        found += _of_python(str(path.relative_to(ROOT)), path.read_text())
    for path in sorted((ROOT / "datapath").rglob("*.c")):
        found += _of_c(str(path.relative_to(ROOT)), path.read_text())
    return found


def _faults(one: Message) -> list[str]:
    found = []
    start = one.text.lstrip("{}:; ")
    if one.is_line and start[:1].isupper() and not _NAME.match(start):
        found.append("begins with a capital")
    if one.is_line and _START.match(one.text):
        found.append("better: name the thing")
    if one.is_line and one.text.rstrip().endswith("."):
        found.append("ends with a full stop")
    if max(len(part.split()) for part in re.split(r"[.;:] ", one.text)) > WORDS_MAX:
        found.append(f"has more than {WORDS_MAX} words")
    return found + [f"better: {better}" for odd, better in _ODD.items() if re.search(odd, one.text)]


def test_messages__are_plain() -> None:
    """Lower-case or a name first, no full stop at the end, no long sentence, no odd word."""
    found = messages()
    faults = []
    for one in found:
        where = f"{one.path}:{one.line}: {one.text}"
        print(where)
        faults += [f"{where}\n    {fault}" for fault in _faults(one)]
    assert len(found) > 1000
    for text in (
        "carefuld is not running",  # C
        "no link on {}",  # a finding of doctor
        "--foreground does not start tune auto",  # a warning of carefulctl
        "that node has left",  # a text by errno
        "{} has no address, or only link-local ones",  # a variable
        "was damaged on its way",  # an error that is returned
    ):
        assert any(text in one.text for one in found), text
    assert not faults, "\n".join(faults)


def _command_line(source: str) -> list[str]:
    """Returns the strings of C that name an option of a command line, or a command."""
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.S)
    return [one for one in re.findall(r'"(?:[^"\\\n]|\\.)*"', code) if _COMMAND_LINE.search(one)]


def test_messages__low_layers_name_no_command_line() -> None:
    """libcareful names an option by its field of struct careful_options; its users spell it."""
    low = {
        path: found
        for path in (ROOT / "datapath").rglob("*.[ch]")
        if "daemon" not in path.relative_to(ROOT).parts
        and (found := _command_line(path.read_text()))
    }
    assert not low
    for text in ("use fewer --peers", "not running (carefulctl up)", "only `up` shows it"):
        assert _command_line(f'/* "--x" */\nreturn explain(error, rc, "%s: "\n"{text}", a);')
    assert not _command_line('/* --x */ f("ip link -- set"); // "--x"')


@pytest.mark.parametrize("folder", ["cli", "control"])
@pytest.mark.parametrize(
    "source",
    [
        "yield warn('link', BAD, ADVICE)",
        'say_folded(f"carefulctl: {BAD}", err=True)',
        "text = BAD if is_up else ''\nsay_folded(text)",
        "TEXTS = {errno.EIO: BAD}\nraise CarefulError(rc, TEXTS[rc], name)",
        "text, what = BAD, name\nraise CarefulError(errno.EIO, text, what)",
        "return CarefulError(errno.EIO, BAD)",
    ],
)
def test_messages__bad_one_is_found(folder: str, source: str) -> None:
    bad = "Whoever looks finds no link any more on X."
    found = list(_of_python(f"ctrl/careful/{folder}/x.py", source.replace("BAD", repr(bad))))
    assert [one.text for one in found if len(_faults(one)) == 4] == [bad]

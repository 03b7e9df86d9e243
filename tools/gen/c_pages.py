"""Writes manual pages of the C API, section 3: `c_pages.py DIRECTORY`.

A page has a function's comment and prototype from the header, and the structs that it names. Each
exported function has a page; libcareful(3) lists them. tools/package calls this for libcareful-dev.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import roff

DATAPATH = Path(__file__).resolve().parents[2] / "datapath"
HEADERS = DATAPATH / "include" / "careful"
_COMMENT = r"(?:^/\*(?P<comment>(?:[^*]|\*(?!/))*)\*/\n)?"
_FUNCTION = re.compile(
    _COMMENT + r"^(?P<prototype>(?!typedef|static|struct \w+ \{|enum )[a-z][\w *]*?\b"
    r"(?P<name>careful_\w+)\([^;{}]*\)[^;{}]*;)",
    re.M,
)
_STRUCT = re.compile(_COMMENT + r"^(?P<text>struct (?P<name>\w+) \{.*?^\};)", re.M | re.S)


@dataclass(frozen=True)
class Function:
    """A function of a header: its comment without its stars, and its prototype."""

    name: str
    header: str
    comment: str
    prototype: str


def _bare(comment: str | None) -> str:
    """Returns a comment's text; keeps indentation inside it."""
    lines = [re.sub(r"^ ?\* ?", "", line.strip()) for line in (comment or "").split("\n")]
    return "\n".join(lines).strip()


def exported() -> set[str]:
    """Returns the symbols that libcareful's map names."""
    text = (DATAPATH / "libcareful.map").read_text()
    return set(re.findall(r"^\t(careful_\w+);", text, re.M))


def functions() -> list[Function]:
    """Returns the exported functions in the order of the headers."""
    names, found = exported(), []
    for path in sorted(HEADERS.glob("*.h")):
        for one in _FUNCTION.finditer(path.read_text()):
            if one["name"] in names:
                words = _bare(one["comment"])
                found.append(Function(one["name"], path.name, words, one["prototype"]))
    return found


def structs() -> dict[str, str]:
    """Returns the structs' declarations with their comments, by name."""
    found = {}
    for path in sorted(HEADERS.glob("*.h")):
        for one in _STRUCT.finditer(path.read_text()):
            comment = f"/*{one['comment']}*/\n" if one["comment"] else ""
            found[one["name"]] = comment + one["text"]
    return found


def _verbatim(text: str) -> list[str]:
    return [".PP", ".nf", roff.plain(text.expandtabs(8)), ".fi"]


def _summary(one: Function) -> str:
    """Returns the first sentence, which whatis shows."""
    first = re.split(r"(?<=[.:;])\s", " ".join(one.comment.split()), maxsplit=1)[0]
    return first.rstrip(".:;") or f"declared in careful/{one.header}"


def page(one: Function, known: dict[str, str]) -> str:
    lines = [".SH SYNOPSIS", *_verbatim(f"#include <careful/{one.header}>\n\n{one.prototype}")]
    if one.comment:
        lines += [".SH DESCRIPTION", *_verbatim(one.comment)]
    named = [name for name in re.findall(r"struct (\w+)", one.prototype) if name in known]
    for number, name in enumerate(dict.fromkeys(named)):
        lines += [".SH STRUCTURES"] * (not number) + _verbatim(known[name])
    lines += [".SH SEE ALSO", r"\fBlibcareful\fR(3)"]
    return roff.page(one.name, 3, _summary(one), lines)


def overview(all_of: Sequence[Function]) -> str:
    text = (HEADERS / "careful.h").read_text()
    head = re.findall(r"^/\*(?! SPDX)(.*?)\*/", text, re.M | re.S)[0]
    lines = [".SH SYNOPSIS", *_verbatim("#include <careful/careful.h>")]
    lines += [".PP", r"cc $(pkg\-config \-\-cflags \-\-libs libcareful)"]
    lines += [".SH DESCRIPTION", *_verbatim(_bare(head)), ".SH FUNCTIONS"]
    for one in all_of:
        lines += [".TP", rf"\fB{roff.plain(one.name)}\fR(3)", roff.plain(_summary(one))]
    return roff.page("libcareful", 3, "active messages over AF_XDP", lines)


def write(directory: Path) -> int:
    """Writes all pages below DIRECTORY/man3. Returns their number."""
    all_of, known = functions(), structs()
    pages = {one.name: page(one, known) for one in all_of} | {"libcareful": overview(all_of)}
    (directory / "man3").mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (directory / "man3" / f"{name}.3").write_text(text, encoding="utf-8")
    return len(pages)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: c_pages.py DIRECTORY")
    print(f"{write(Path(sys.argv[1]))} pages")

"""`carefulctl help python`: each program on the page prints the output below it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

import pytest
from careful import man
from hosts import PINS, Host, Hosts, wait_for

pytestmark = pytest.mark.lab


class Program(NamedTuple):
    """A program of the page.

    Attributes:
        host: the host that runs it.
        text: of it.
        output: the output below it; "": it serves without end.
    """

    host: str
    text: str
    output: str


def sections() -> dict[str, list[Program]]:
    """The page's programs, by heading."""
    found: dict[str, list[Program]] = {}
    for part in man.source("python").split("\n## ")[1:]:
        heading, _, body = part.partition("\n")
        blocks = re.findall(
            r"(.*?)^```python\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", body, re.M | re.S
        )
        programs = []
        for before, text, output in blocks:
            host = re.findall(r"\b[Oo]n `(h\d)`", before)[-1]
            programs.append(Program(host, text, output))
        if programs:
            found[heading] = programs
    return found


FILES = [name for name, found in sections().items() if "careful.files" in found[0].text]
NODES = [name for name in sections() if name not in FILES]


def test_page__has_programs_of_both_kinds() -> None:
    assert (len(FILES), len(NODES)) == (4, 2)
    assert man.source("python").count("```python") == sum(map(len, sections().values()))


def run(host: Host, program: Program) -> None:
    argv = host.lab.argv(program.host, sys.executable, "-W", "default", "-c", program.text)
    done = subprocess.run(argv, cwd=host.own, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (program.output, "", 0)


def test_files__as_on_the_page(pair: tuple[Host, Host]) -> None:
    """Runs them in order, since some use files of earlier ones."""
    here, _ = pair
    (here.own / "notes").write_bytes(b"hello, world\n")
    (here.own / "other").write_bytes(b"other")
    for name in FILES:
        (program,) = sections()[name]
        run(here, program)
    assert (here.own / "back").read_bytes() == b"hello, world\n"
    assert (here.own / "other").read_bytes() == b"hello, world\n"


@pytest.mark.parametrize("name", NODES)
def test_messages__as_on_the_page(hosts: Hosts, name: str) -> None:
    local, remote = hosts()
    serves, asks = sections()[name]
    assert (serves.host, asks.host, serves.output) == (remote.name, local.name, "")
    process = remote.lab.start("h2", sys.executable, "-c", serves.text)
    wait_for((PINS / remote.lab.instance("h2")).exists, "node")
    run(local, asks)
    assert process.poll() is None

"""Hints for users of scp, rsync and iperf3: the message says what to type instead."""

from __future__ import annotations

import pytest
from careful.cli.main import run
from careful.units import parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("put big", "HOST:PATH is missing: `carefulctl put big HOST:`"),
        ("get big h2:", "big is local: `carefulctl put big h2:`"),
        ("put -r h2:project .", "h2:project is on another host: `carefulctl get -r h2:project .`"),
        ("put h2:a h3:b", "h2:a is on another host: `carefulctl cp h2:a h3:b`"),
        ("get h2:a h3:b", "name a local target ('.'), or `carefulctl cp h2:a h3:b`"),
        ("cp a h3:b", "a is local: `carefulctl put a h3:b`"),
        ("cp h2:a b", "b is local: `carefulctl get h2:a b`"),
        ("scp h2:a .", "no such command 'scp'; did you mean cp?"),
        ("get careful://h2/doc/x", "is a URL for Python: write h2:doc/x"),
        ("statsu", "no such command 'statsu'; did you mean status?"),
        ("measure patchar h2", "no such command 'patchar'; did you mean pathchar?"),
        ("iperf3 -c h2", "no such command 'iperf3'; did you mean speed?"),
        ("show", "no such command 'show'; did you mean status?"),
        ("genkey", "no such command 'genkey'; did you mean key new?"),
        ("key genkey", "no such command 'genkey'; did you mean new?"),
        ("help fles", "no topic or command 'fles'; did you mean files?"),
    ],
)
def test_hint__names_the_command(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    found = capsys.readouterr().err
    assert said in found
    assert found.count("\n") == 1
    assert found.count("did you mean") == said.count("did you mean")


def test_hint__a_user_before_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["get", "root@nobody.invalid:x"]) == 1
    errors = capsys.readouterr().err
    assert "careful knows no users; name the host alone: nobody.invalid" in errors


def test_sync__takes_the_options_that_it_always_has() -> None:
    assert run(["sync", "-avr", "nobody.invalid:x", "."]) == 1


def test_hint__an_absolute_path(capsys: pytest.CaptureFixture[str]) -> None:
    """rsync and scp mean the host's root; here an export is the root."""
    hint = "paths start below what h.invalid exports; `carefulctl ls h.invalid:` lists it"
    for path, count in (("/srv/x", 1), ("srv/x", 0)):
        assert run(["get", f"h.invalid:{path}", "."]) == 1
        assert capsys.readouterr().err.count(hint) == count


def test_units__of_tc_and_ping() -> None:
    assert parse_bytes("1Gbit") == 125_000_000
    assert parse_bytes("8kbit") == 1000
    assert parse_seconds("50usec") == pytest.approx(50e-6)
    assert parse_seconds("5msec") == pytest.approx(5e-3)

"""Hints for users of scp, rsync and iperf3: the message says what to type instead."""

from __future__ import annotations

import pytest
from careful.cli.main import run
from careful.units import parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("put big", "HOST:PATH is missing: `carefulctl put big HOST:`"),
        ("get big h2:", "big is local: use `carefulctl put big h2:`"),
        ("put -r h2:project .", "h2:project is on another host: `carefulctl get -r h2:project .`"),
        ("put h2:a h3:b", "h2:a is on another host: `carefulctl cp h2:a h3:b`"),
        ("get h2:a h3:b", "name a local target ('.'), or `carefulctl cp h2:a h3:b`"),
        ("cp a h3:b", "a is local: use `carefulctl put a h3:b`"),
        ("cp h2:a b", "b is local: use `carefulctl get h2:a b`"),
        ("scp h2:a .", "no such command 'scp'; did you mean cp?"),
        ("get careful://h2/doc/x", "is a URL for Python: write h2:doc/x"),
        ("statsu", "no such command 'statsu'; did you mean status?"),
        ("measure patchar h2", "no such command 'patchar'; did you mean pathchar?"),
        ("iperf3 -c h2", "no such command 'iperf3'; did you mean speed?"),
        ("show", "no such command 'show'; did you mean status?"),
        ("genkey", "no such command 'genkey'; did you mean key new?"),
        ("key genkey", "no such command 'genkey'; did you mean new?"),
        ("get rsync://root@h2/doc/x", "is a URL: write h2:doc/x"),
        ("get rsync://h2:873/x", "is a URL: write h2:x"),
        ("sync -avz h2:x .", "there is no -z: nothing is compressed"),
        ("sync -avP h2:x .", "there is no -P: progress is shown"),
        ("sync -avh h2:x .", "in -avh, -h means --help: leave out the h"),
        ("sync -H h2:x .", "there is no -H: -a is always on: -a copies symlinks, hard links"),
        ("put --partial big h2:", "there is no --partial: progress is shown and partial"),
        ("put --progress big h2:", "there is no --progress: progress is shown"),
        ("get --bwlimit=1 h2:x .", "there is no --bwlimit: use --rate-limit 1Gbit"),
        ("get --rate-limit 1Gbps h2:x .", "'1Gbps' may be bits or bytes: write 1Gbit or 1GB"),
        ("get -C h2:x .", "there is no -C: nothing is compressed"),
        ("get -l 8000 h2:x .", "there is no -l: scp's limit is --rate-limit 1Gbit here"),
        ("get -i key h2:x .", "there is no -i: there is no ssh"),
        ("speed -c h2", "there is no -c: give the host without an option"),
        ("speed -R h2", "there is no -R: data comes from HOST"),
        ("speed -P 4 h2", "there is no -P: speed measures one stream"),
        ("simulate --fragments-bytes 1K", "there is no --fragments-bytes: use --fragment-bytes"),
        ("simulate --messages 8", "there is no --messages: use --count"),
        ("trace frames --most 8", "there is no --most: use --max-transfers"),
        ("fleet up --limit 5s", "there is no --limit: use --timeout"),
        ("fleet put --limit 5s big", "there is no --limit: use --timeout"),
        ("fleet put --replace big", "there is no --replace: use --force"),
        ("bench --limit 5s", "there is no --limit: use --timeout"),
        ("bench --keep a.json", "there is no --keep: use --output"),
        ("cp --no-sync h2:a h3:", "there is no --no-sync: use --fsync none"),
        ("get --no-digest h2:a", "there is no --no-digest: use --digest none"),
        ("get --from0 h2:a", "there is no --from0: use --null"),
        ("ping -w 5 h2", "there is no -w: use -c N"),
        ("ping -W 5 h2", "there is no -W: ping ends at the first round trip without"),
        ("capture -i eth1", "there is no -i: give the interface without an option"),
        ("sync -i h2:x .", "there is no -i: -v names what is copied"),
        ("ping -q h2", "there is no -q: use --json"),
        ("ping -n h2", "there is no -n: addresses are never looked up"),
        ("ping -4 h2", "there is no -4: give an address of that family"),
        ("ping -I eth1 h2", "there is no -I: the route to HOST decides"),
        ("ping -t 3 h2", "there is no -t: `carefulctl measure pathchar HOST`"),
        ("ping -f h2", "there is no -f: use -i 1ms"),
        ("ping -D h2", "there is no -D: `| ts` begins each line with the time"),
        ("speed -b 1G h2", "there is no -b: speed sends as fast as it can"),
        ("speed -n 1G h2", "there is no -n: speed sends as fast as it can"),
        ("ls -la h2:", "there is no -a: all names are listed"),
        ("measure pathchar -n h2", "there is no -n: addresses are never looked up"),
        ("capture -X eth1", "there is no -X: write a file with -w"),
        ("top -d 1", "there is no -d: top looks once a second"),
        ("sync --delete-after h2:x .", "there is no --delete-after: use --delete"),
        ("sync -I h2:x .", "there is no -I: -c compares contents"),
        ("ping -z h2", "No such option"),
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
    assert run(["get", "root@nobody.invalid:/tmp/x"]) == 1
    assert capsys.readouterr().err == errors


def test_hint__a_module_of_rsync(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["get", "nobody::module/x", "."]) == 1
    errors = capsys.readouterr().err
    assert "careful has no modules of rsync: write nobody:module/x" in errors
    assert max(map(len, errors.splitlines())) <= 80


def test_sync__accepts_the_flags_that_it_implies() -> None:
    assert run(["sync", "-avr", "nobody.invalid:x", "."]) == 1


def test_hint__an_absolute_path(capsys: pytest.CaptureFixture[str]) -> None:
    """rsync and scp mean the host's root; here an export is the root."""
    hint = "paths start below what h.invalid exports; `carefulctl ls h.invalid:` lists it"
    for path, count in (("/srv/x", 1), ("srv/x", 0)):
        assert run(["get", f"h.invalid:{path}", "."]) == 1
        assert capsys.readouterr().err.count(hint) == count


def test_units__tc_and_ping_spellings() -> None:
    assert parse_bytes("1Gbit") == 125_000_000
    assert parse_bytes("8kbit") == 1000
    assert parse_seconds("50usec") == pytest.approx(50e-6)
    assert parse_seconds("5msec") == pytest.approx(5e-3)

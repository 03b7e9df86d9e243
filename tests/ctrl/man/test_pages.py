"""The manual and the commands' help can be shown, and name only existing things."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import roff
from careful import man
from careful.cli.command import Command, Group, summary
from careful.cli.exit_status import Exit
from careful.cli.main import COMMANDS, cli, run
from careful.man import terminal

ALL = dict(roff.commands(cli, ("carefulctl",)))
README = Path(__file__).parents[3] / "README.md"
PLACES = [f"help {' '.join(names[1:])}" for names in ALL] + [*man.topics(), "README"]


def context(names: tuple[str, ...]) -> click.Context:
    return roff._context(names, ALL[names])


_BLOCK = re.compile(r"^```\n(.*?)^```", re.M | re.S)


def page(topic: str) -> str:
    """Returns a page without its Python programs, which test_python_page.py runs."""
    text = README.read_text(encoding="utf-8") if topic == "README" else man.source(topic)
    return re.sub(r"^```python\n.*?^```\n", "", text, flags=re.M | re.S)


def shown(place: str) -> Iterator[str]:
    """Returns every whole command line in blocks of a page or in examples of a command."""
    if place.startswith("help"):
        one = ALL["carefulctl", *place.split()[1:]]
        assert isinstance(one, (Command, Group))
        text = "\n".join(line for line, _ in one.examples)
    else:
        text = "\n".join(_BLOCK.findall(page(place)))
    yield from parts(text.replace('eval "$(', "").replace(')"', ""))


def parts(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for part in re.split(r"[|;&>]+", re.sub(r"(^| )#.*", "", line)):
            yield re.sub(r"^(host\d# |tools/lab exec h\d -- )", "", part.strip())


def typed(place: str) -> Iterator[str]:
    """Returns the command lines of shown(), and those in a page's text."""
    yield from shown(place)
    if not place.startswith("help"):
        rest = _BLOCK.sub("", page(place))
        yield from parts("\n".join(re.findall(r"`([^`]+)`", rest)))


def unknown(line: str) -> list[str]:
    """Returns the words of a command line that are no command or option of ours."""
    words = shlex.split(line)
    while words and re.fullmatch(r"[A-Z_]+=.*|sudo", words[0]):
        words.pop(0)
    known = {option for names in ALL for option in options(names)}
    if words and words[0] == "carefulctl":
        names = ("carefulctl",)
        rest = words[1:]
        while rest and isinstance(ALL[names], click.Group):
            if (*names, rest[0]) not in ALL:
                break
            names = (*names, rest.pop(0))
        if names == ("carefulctl",) and rest and not rest[0].startswith("-"):
            return [rest[0]]
        if names[1:] == ("help",) and rest[:1] and rest[0] not in man.topics():
            return [] if ("carefulctl", *rest) in ALL or rest[0].isupper() else rest
        known = set(options(names)) | set(options((*names, "list")))
        words = rest
    elif not words or not words[0].startswith("--"):
        return []
    return [one for one in used(words) if one not in known]


def used(words: list[str]) -> Iterator[str]:
    for word in words:
        if word.startswith("--"):
            yield word.partition("=")[0]
        elif re.match(r"-[A-Za-z0]", word):
            yield from (f"-{letter}" for letter in word[1:])


def options(names: tuple[str, ...]) -> list[str]:
    if names not in ALL:
        return []
    ctx = context(names)
    params = ALL[names].get_params(ctx)
    return [opt for one in params for opt in (*one.opts, *one.secondary_opts)]


def test_unknown__finds_missing_names() -> None:
    assert unknown("carefulctl fly h2:") == ["fly"]
    assert unknown("carefulctl get -rZ --soon h2: .") == ["-Z", "--soon"]
    assert unknown("CAREFUL_DEBUG=1 carefulctl help nonsense") == ["nonsense"]
    assert unknown("--soon") == ["--soon"]
    assert unknown("carefulctl get -ra --fsync=end h2: .") == []
    assert unknown("carefulctl partials prune --json h2:") == []


@pytest.mark.parametrize("place", PLACES)
def test_pages__commands_and_options_exist(place: str) -> None:
    assert {line: found for line in typed(place) if (found := unknown(line))} == {}


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_help__every_command_has_help(
    names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Help has 80 columns, ends with examples, and names existing pages."""
    one = ALL[names]
    assert run([*names[1:], "--help"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert not re.search(r"[a-z ]\.\.\.", text)  # cut; ARGS]... is not
    assert isinstance(one, (Command, Group))
    assert one.examples
    assert "Examples:" in text
    assert set(one.topics) <= set(man.topics())
    if len(names) > 1 and names[1:] != ("memory",):  # a page of that name comes first
        assert run(["help", *names[1:]]) == 0
        assert capsys.readouterr().out == text


@pytest.mark.parametrize("name", ["ls", "get", "put", "sync", "verify"])
def test_help__names_options_of_its_own(name: str) -> None:
    """`sync --help` once had -u, --at and -r of get."""
    names = "carefulctl", name
    one = ALL[names]
    assert isinstance(one, (Command, Group))
    texts = [text for rows in one.headings(context(names)).values() for _, text in rows]
    reported = re.sub(r"\[(env|default): .*?\]", "", " ".join([one.help or "", *texts]))
    mentioned = re.findall(r"(?<![^\s(])--?[A-Za-z][a-z-]*", reported)
    assert [word for word in mentioned if word not in options(names)] == []


@pytest.mark.parametrize("place", PLACES)
def test_examples__parse(
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Parses every command line in examples and blocks, without running it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)
    for name in ("plan.json", "kept.json"):
        (tmp_path / name).touch()
    lines = [line for line in shown(place) if line.startswith("carefulctl ")]
    assert lines or not place.startswith("help")
    for line in lines:
        assert run(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)


def test_help__summaries_are_the_commands_own() -> None:
    """Summaries are in a table, so that the list of commands imports no command."""
    table = {name: text for rows in COMMANDS.values() for name, text in rows.items()}
    assert table == {names[1]: summary(one) for names, one in ALL.items() if len(names) == 2}


def test_help__lists_no_command_that_users_do_not_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert "  put " in listed
    assert "relay" not in listed


def test_help__lists_topics_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    output = capsys.readouterr().out
    for name in (*man.topics(), *(name for rows in COMMANDS.values() for name in rows)):
        assert re.search(rf"^  {name} ", output, re.M), name
    assert run(["help", "nonsense"]) == 2
    assert "no topic or command 'nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize("topic", man.topics())
def test_topic__fits_the_terminal(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = man.source(topic)
    head, _, rest = page.partition("\n")
    assert head == f"# {topic} - {man.topics()[topic]}"
    assert man.topics()[topic]
    assert "\n# " not in re.sub(r"^```.*?^```", "", rest, flags=re.M | re.S)
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", page, re.M | re.S)
    typed = {f"  {line}".rstrip() for block in blocks for line in block.splitlines()}
    assert [line for line in typed if len(line) > 80] == []
    for width in 60, 80, 200:
        lines = terminal.shown(page, width, coloured=False).splitlines()
        assert typed <= set(lines)  # for copying: neither folded nor cut
        assert [line for line in lines if len(line) > min(width, 80) and line not in typed] == []
    assert run(["help", topic]) == 0
    assert capsys.readouterr().out.startswith(f"{topic} - ")
    assert "\x1b[1m" in terminal.shown(page, 80, coloured=True)


def test_roff__every_page_is_clean(tmp_path: Path) -> None:
    """man reports nothing, and every command and topic has its page."""
    if not shutil.which("man") or not shutil.which("groff"):
        pytest.skip("man and groff are not installed")
    count = roff.write(tmp_path)
    pages = sorted(tmp_path.rglob("*.[157]"))
    assert count == len(pages) == len(ALL) + len(man.topics())
    for page in pages:
        argv = ["man", "--warnings=all", "-P", "cat", "-l", str(page)]
        done = subprocess.run(
            argv, capture_output=True, text=True, env={"MANWIDTH": "80", "PATH": "/usr/bin:/bin"}
        )
        assert (done.returncode, done.stderr) == (0, ""), page
        assert page.name.partition(".")[0] in done.stdout


def test_roff__the_configuration_file_is_in_section_5() -> None:
    assert roff.topic("careful.toml").splitlines()[1].startswith('.TH "CAREFUL.TOML" "5" ')
    assert roff.topic("files").splitlines()[1].startswith('.TH "CAREFUL-FILES" "7" ')
    names = "carefulctl", "config", "check"
    assert "careful.toml(5), carefulctl\\-config(1)" in roff.command(names, ALL[names])


def test_exit_status__the_page_has_each() -> None:
    text = man.source("exit-status")
    listed = [
        int(one) for row in re.findall(r"^\| ([0-9, ]+) \|", text, re.M) for one in row.split(",")
    ]
    signals = [Exit.SIGNALLED + one for one in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)]
    assert listed == [*(one for one in Exit if one != Exit.SIGNALLED), *signals]
    assert click.UsageError("").exit_code == Exit.MISUSED


def test_readme__its_programs_are_the_page_s() -> None:
    _, _, part = README.read_text().partition("## Python\n")
    programs = re.findall(r"^```python\n(.*?)^```", part, re.M | re.S)
    assert len(programs) == 3
    assert [one for one in programs if one not in man.source("python")] == []


def test_readme__is_short() -> None:
    prose = re.sub(r"^```.*?^```$", "", README.read_text(), flags=re.M | re.S)
    words = [word for line in prose.splitlines() if line[:1] != "|" for word in line.split()]
    assert len(words) <= 1000


@pytest.mark.parametrize("place", ["README", "performance"])
def test_summary__the_table_is_of_the_kept_runs(place: str) -> None:
    run = README.parent / "tools" / "bench" / "run"
    kept = README.parent / "tests" / "reports" / "speed.json"
    argv = [sys.executable, run, "speed", "--rounds", "0", "--keep", kept]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    table = done.stdout.partition("\n\n")[0]
    assert table.count("\n| ") >= 5
    assert table in page(place)

"""`carefulctl measure` and `trace`: invalid numbers are usage errors."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest
from careful.cli.main import run
from careful.measure.endpoints import logp
from careful.measure.inside import clearbox
from careful.measure.outside import blackbox
from careful.measure.path import pathchar


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "0", "-1", "soon", "1e300"])
@pytest.mark.parametrize(
    "argv",
    [
        ["measure", "pathchar", "h2", "--time"],
        ["measure", "pathchar", "h2", "--timeout"],
        ["measure", "pathchar", "h2", "--precision"],
        ["measure", "blackbox", "h2", "--time"],
        ["measure", "blackbox", "h2", "--precision"],
        ["measure", "clearbox", "h2", "--time"],
        ["measure", "logp", "h2", "--time"],
        ["measure", "logp", "h2", "--precision"],
        ["measure", "logp", "h2", "--gap-for"],
        ["trace", "stages", "--time"],
        ["trace", "frames", "--gap"],
        ["trace", "frames", "--max-transfers"],
    ],
    ids=lambda argv: "-".join(argv[1:]),
)
def test_usage__an_invalid_number_is_status_2(
    argv: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*argv, word]) == 2
    errors = capsys.readouterr().err
    assert f"Invalid value for '{argv[-1]}'" in errors
    assert word in errors


@pytest.mark.parametrize("options", [one.Options for one in (blackbox, clearbox, logp, pathchar)])
@pytest.mark.parametrize("field", ["seconds", "precision"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_options__nan_and_infinity_are_refused(options: type, field: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"precision (and share )?must be between"):
        options(**{field: value})


@pytest.mark.parametrize(
    "argv",
    [
        ["measure", "pathchar", "h2"],
        ["measure", "blackbox", "h2"],
        ["measure", "clearbox", "h2"],
        ["measure", "logp", "h2"],
        ["trace", "stages", "eth1"],
        ["trace", "frames", "eth1"],
        ["plan", "--pipeline", "gms", "--bytes", "8KiB"],
        ["simulate", "--pipeline", "gms", "--bytes", "8KiB"],
    ],
    ids=lambda argv: "-".join(argv[:2]),
)
@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("curve.pdf", "curve.pdf: plots are .png or .svg"),
        ("no/curve.svg", "no: no such directory"),
        ("dir.svg", "dir.svg: is a directory"),
        ("/proc/curve.svg", "/proc/curve.svg: No such file or directory"),
    ],
)
def test_plot__an_unwritable_file_is_refused_at_once(
    argv: list[str],
    file: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its error was once a traceback, a line or a usage message, also after the measurement."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir.svg").mkdir()
    assert run([*argv, "--plot", file]) == 2
    output = capsys.readouterr()
    path = " ".join(one for one in argv[:2] if argv[0] in ("measure", "trace") or one == argv[0])
    help_at = f"(see `carefulctl {path} --help`)"
    assert output.err == f"carefulctl: Invalid value for '--plot': {why} {help_at}\n"
    assert output.out == ""
    assert [one.name for one in tmp_path.iterdir()] == ["dir.svg"]


def test_plot__an_existing_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "curve.svg"
    file.write_text("old")
    assert run(["plan", "--pipeline", "gms", "--bytes", "0", "--plot", str(file)]) == 1
    assert file.read_text() == "old"


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["fly"], "no such command 'fly'"),
        (["plan", "--bytes", "1"], "Missing option '--pipeline'"),
        (["get", "foo"], "foo"),
        (["up"], "Missing argument 'IFACE'"),
    ],
)
def test_usage__is_one_line_that_names_the_help(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith(f"carefulctl: {text}")
    command = " ".join(["carefulctl", *(argv[:1] if argv[0] != "fly" else [])])
    assert errors.endswith(f"(see `{command} --help`)\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--peers", "0"),
        ("--peers", "257"),
        ("--queue", "-1"),
        ("--port", "0"),
        ("--port", "65536"),
        ("--rx-buffers", "0"),
        ("--tx-buffers", "1048577"),
        ("--cpu", "-1"),
    ],
)
def test_up__a_number_out_of_range(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number is refused before any work; carefuld would refuse it too late for status 2."""
    assert run(["up", "nowhere0", option, value]) == 2
    assert f"Invalid value for '{option}': {value} is not in the range" in capsys.readouterr().err
    alone = subprocess.run(["carefuld", option, value], capture_output=True, text=True)
    assert alone.returncode == 2
    assert f"{option} {value}: " in alone.stderr


def test_usage__without_a_command_prints_help_with_status_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 2
    assert capsys.readouterr().err.startswith("Usage: carefulctl")

"""`carefulctl --version`: the release, the interface versions, and the features."""

from __future__ import annotations

import json
import subprocess

import careful
import pytest
from careful._abi import lib
from careful.cli.main import run


def test_version__names_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(
        f"carefulctl {careful.__version__}, libcareful {careful.__version__}\n"
    )
    wire = f"{lib.CAREFUL_WIRE_VERSION}.{lib.CAREFUL_WIRE_MINOR}"
    numbers = wire, lib.CAREFUL_IPC_VERSION, lib.CAREFUL_ABI_VERSION
    line = "wire {} (between hosts), socket {} (to carefuld), ABI {} (of its maps)\n"
    assert line.format(*numbers) in output
    assert "protocols: careful, traditional\n" in output
    daemon = subprocess.run(["carefuld", "--version"], capture_output=True, text=True, check=True)
    assert "(wire {}, socket {}, ABI {})\n".format(*numbers) in daemon.stdout


def test_version__json(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version", "--json"], ["--json", "--version"]):
        assert run(words) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["command"] == "version"
        assert found["wire_version"] == lib.CAREFUL_WIRE_VERSION
        assert found["wire_minor"] == lib.CAREFUL_WIRE_MINOR
        assert found["abi_version"] == lib.CAREFUL_ABI_VERSION
        assert found["features"]["digests"] == ["xxh3", "blake3", "blake3_root"]


@pytest.mark.parametrize(
    ("words", "said"), [(["--json"], "--json needs a command"), (["--"], "missing command")]
)
def test_usage__no_command_but_an_option(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--json", "plan"], ["plan", "--json"], ["--json", "plan", "--"]]
)
def test_json__before_the_command_or_after(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words[words.index("plan") + 1 : words.index("plan") + 1] = [
        "--pipeline",
        "gam",
        "--bytes",
        "4K",
    ]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "plan"

"""The configuration file: who tunes an instance, what is wrong where, and the example."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from careful.cli.main import run
from careful.control import config
from careful.errors import CarefulError

FILE = Path("careful.toml")


def test_tune__of_all_and_of_one() -> None:
    found = config.parse('[up]\ntune = "auto"\n[instance.eth2]\ntune = "off"\ncpu = 1', FILE)
    assert found.tune("eth1") == "auto"
    assert found.tune("eth2") == "off"
    assert found.options("eth2").cpu == 1
    assert config.Config().tune("eth1") == "off"


def test_socket__group_of_all_but_where_more_is_said() -> None:
    text = '[socket]\ngroup = "lab"\n[instance.eth2]\ngroup = "other"\n'
    found = config.parse(text, FILE)
    assert [found.options(name).group for name in ("eth1", "eth2")] == ["lab", "other"]
    assert config.parse(text + '[up]\ngroup = "up"', FILE).options("eth1").group == "up"


def test_tune__a_later_file_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("etc.toml", "home.toml")]
    files[0].write_text('[up]\ntune = "auto"\n[instance.eth2]\ntune = "auto"')
    files[1].write_text('[instance.eth2]\ntune = "off"')
    monkeypatch.delenv("CAREFUL_CONFIG", raising=False)
    monkeypatch.setattr(config, "DEFAULT_PATHS", tuple(files))
    found = config.load()
    assert [found.tune(name) for name in ("eth1", "eth2")] == ["auto", "off"]


@pytest.mark.parametrize("value", ['"on"', "true", "1", '["auto"]', '""'])
@pytest.mark.parametrize("table", ["up", "instance.eth1"])
def test_tune__that_cannot_be_meant(table: str, value: str) -> None:
    with pytest.raises(CarefulError, match=r"tune = .*: one of auto, off"):
        config.parse(f"[{table}]\ntune = {value}", FILE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[up]\npeers = 8\nwat = 1", r":3: \[up\] has no option 'wat'; there are name, peers"),
        ("[up]\n\n[instance.eth1]\nwait = 'no'", r":4: \[instance.eth1\] wait = 'no': one of"),
        ('[instance."eth1"]\n\n  cpu = "a"', r":3: \[instance.eth1\] cpu = 'a': .* wrong type"),
        ("[nodes]\n[exports]", r":2: \[exports\] is unknown; there are \[nodes\]"),
        ("[transfer]\nloss = 1", r":1: \[transfer\] must be a table of on_loss"),
        ("[socket]\nmode = 1", r":1: \[socket\] must be a table of group"),
        ("[socket]\ngroup = 1", r":2: \[socket\] group = 1: .* wrong type"),
        ("[up]\ntune = 'x'", r":2: \[up\] tune = 'x': one of"),
        ("[state]\ndirectory = 'a'", r":2: \[state\] directory"),
        ("up = {peers = 'x'}", r"toml: \[up\] peers = 'x'"),  # no line of its own
        ("[up]\npeers 8", r"\(at line 2, column 7\)"),
    ],
)
def test_check__names_what_is_wrong_and_its_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "careful.toml"
    path.write_text(text)
    assert run(["config", "check", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(re.escape(str(tmp_path)) + ".*" + said, error)


def test_check__says_what_was_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "careful.toml"
    path.write_text('[nodes]\nh2 = "10.0.0.2"\n[instance.eth1]\ncpu = 1\n')
    assert run(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no error; 1 nodes, 1 instances\n"
    assert run(["config", "check", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == {"h2": "10.0.0.2"}
    assert run(["config", "check", str(tmp_path / "none")]) == 1


def test_example__names_every_key_and_changes_nothing() -> None:
    example = (Path(__file__).parents[3] / "tools/packaging/careful.toml").read_text()
    bare = config.parse(example, FILE)
    assert (bare.up, bare.nodes, bare.tunes) == (config.UpOptions(), {}, {})
    whole = re.sub(r"^#(\w+ = )", r"\1", example, flags=re.M)
    config.parse(whole, FILE)
    tree = tomllib.loads(whole)
    keys = {*tree["up"], *tree["instance"]["eth1"]}
    assert keys == {one.name for one in fields(config.UpOptions)} | {"tune"}
    assert tree["up"]["rx_buffers"] == config.DEFAULTS.rx_buffers
    assert set(tree) == {"nodes", "up", "instance", "socket", "transfer", "state"}

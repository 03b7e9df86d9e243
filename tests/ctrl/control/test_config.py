"""The configuration file: tuning settings, errors and their lines, and the example."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from careful import man
from careful.cli.instance.up import up
from careful.cli.main import run
from careful.control.carefuld import daemon
from careful.control.checks import doctor
from careful.control.options import config
from careful.control.options.up_options import DEFAULTS, OPTIONS, UpOptions, flag, matches, refused
from careful.errors import CarefulError

FILE = Path("careful.toml")
ROOT = Path(__file__).parents[3]


def test_tune__all_peers_and_a_single_peer() -> None:
    found = config.parse('[up]\ntune = "auto"\n[instance.eth2]\ntune = "off"\ncpu = 1', FILE)
    assert found.tune("eth1") == "auto"
    assert found.tune("eth2") == "off"
    assert found.options("eth2").cpu == 1
    assert config.Config().tune("eth1") == "off"


def test_socket__its_group_is_the_default_of_up() -> None:
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
def test_tune__an_invalid_value_is_refused(table: str, value: str) -> None:
    with pytest.raises(CarefulError, match=r"tune = .*: must be one of auto, off"):
        config.parse(f"[{table}]\ntune = {value}", FILE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[up]\npeers = 8\nwat = 1", r":3: \[up\] has no option 'wat'; there are peers, export"),
        ("[up]\n\n[instance.eth1]\nwait = 'no'", r":4: \[instance.eth1\] wait = 'no': must be"),
        ('[instance."eth1"]\n\n  cpu = "a"', r":3: \[instance.eth1\] cpu = 'a': .*wrong type"),
        ("[nodes]\n[exports]", r":2: \[exports\] is unknown; there are \[nodes\]"),
        ("[transfer]\nloss = 1", r":1: \[transfer\] must be a table with no key but on_loss"),
        ("[socket]\nmode = 1", r":1: \[socket\] must be a table with no key but group"),
        ("[socket]\ngroup = 1", r":2: \[socket\] group = 1: .*wrong type"),
        ("[up]\ntune = 'x'", r":2: \[up\] tune = 'x': must be one of"),
        ("[state]\ndirectory = 'a'", r":2: \[state\] directory"),
        ("[up]\npeers = true", r":2: .*wrong type, it needs a whole number"),
        ("[up]\nexport = '/srv'", r":2: .*wrong type, it needs a list of texts"),
        ("[up]\npeers = 0", r":2: \[up\] peers = 0: must be a number from 1 to 256"),
        ("[up]\nport = 99999", r":2: \[up\] port = 99999: must be a number from 1 to 65535"),
        ("[up]\nspin_us = -5", r":2: \[up\] spin_us = -5: must be a number from 1 to 1000000"),
        ("[up]\nrx_buffers = 500", r":2: \[up\] rx_buffers = 500: must be a power of two"),
        ("[up]\ntx_buffers = 500", r":2: \[up\] tx_buffers = 500: must be a power of two"),
        ("[up]\nseal = 'on,off'", r":2: \[up\] seal = 'on,off': 'on' must be off, auth or encrypt"),
        ("[up]\nseal = 'auth@'", r":2: \[up\] seal = 'auth@': 'auth@' must be off, auth or encr"),
        (f"[up]\nname = '{'n' * 32}'", r":2: \[up\] name = 'n*': must be at most 31 bytes long"),
        ("[up]\nkeys = ''", r":2: \[up\] keys = '': must not be empty"),
        ('[up]\nname = "a\\u0000"', r":2: \[up\] name = .*: must not contain a NUL"),
        (
            "[up]\nexport = ['/srv:rw,own']",
            r":2: \[up\] export = .*: 'own' is not an option of :rw",
        ),
        ("[nodes]\nh1 = '10.0.0.1'\nh2 = 5", r":3: \[nodes\] h2 = 5: must be NAME = "),
        ("[instance]\ncpu = 1", r":2: \[instance\] cpu = 1: which instance\?"),
        ("[nodes]\nh2 = ''", r":2: \[nodes\] h2 = '': must be NAME = "),
        ("up = {peers = 'x'}", r"toml: \[up\] peers = 'x'"),  # no line of its own
        ("[up]\npeers 8", r"\(at line 2, column 7\)"),
    ],
)
def test_check__names_the_fault_and_its_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "careful.toml"
    path.write_text(text)
    assert run(["config", "check", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(re.escape(str(tmp_path)) + ".*" + said, error)


def test_options__each_is_declared_once_and_in_all_places() -> None:
    """One table defines the command line, careful.toml, the manual and carefuld's defaults."""
    words = {word for param in up.params for word in param.opts}
    page = man.source("careful.toml")
    for name, one in OPTIONS.items():
        assert flag(name) in words
        assert f"| `{name}` |" in page
        if one.default is not None:
            value = [*one.default] if isinstance(one.default, tuple) else one.default  # type: ignore[misc]
            assert matches(name, value), name
            assert not refused(name, value), name


def test_exported__names_are_those_of_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes of the command line and of the file count; `doctor` knows them, too."""
    path = tmp_path / "careful.toml"
    path.write_text(
        '[nodes]\nh2 = "10.0.0.2"\nh3 = "fd00::3"\n'
        f'[up]\nexport = ["{tmp_path}:ro,host=h2,host=h3"]\n'
    )
    asked = []

    def up(ifname: str, name: str, options: UpOptions, state: Path) -> None:
        asked.append(options.export)
        raise CarefulError(1, "as asked")

    monkeypatch.setattr(daemon, "up", up)
    argv = ["up", "eth1", "--config", str(path)]
    assert run(argv) == run([*argv, "--export", f"{tmp_path}:rw,host=h3"]) == 1
    assert asked == [
        (f"{tmp_path}:ro,host=10.0.0.2,host=fd00::3",),
        (f"{tmp_path}:rw,host=fd00::3",),
    ]
    capsys.readouterr()
    found = {one.check: one for one in doctor.check("lo", None, path)}
    assert found["exports"].text == f"{tmp_path}:ro,host=10.0.0.2,host=fd00::3"


def test_load__a_mark_of_the_byte_order(tmp_path: Path) -> None:
    """Some editors begin a file with one."""
    path = tmp_path / "careful.toml"
    path.write_text('[nodes]\nh2 = "10.0.0.2"\n', encoding="utf-8-sig")
    assert config.load(path).nodes == {"h2": "10.0.0.2"}


def test_load__a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like in a container: no HOME, and no line in /etc/passwd."""

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("CAREFUL_CONFIG", raising=False)
    monkeypatch.setattr(config, "DEFAULT_PATHS", (Path("~/.config/careful/careful.toml"),))
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert config.load() == config.Config()


def test_check__names_the_files_that_were_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "careful.toml"
    path.write_text('[nodes]\nh2 = "10.0.0.2"\n[instance.eth1]\ncpu = 1\n')
    assert run(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no error; 1 nodes, 1 instances\n"
    assert run(["config", "check", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == {"h2": "10.0.0.2"}
    assert run(["config", "check", str(tmp_path / "none")]) == 1


def test_check__finds_faults_that_up_would_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command once reported "no error" for each."""
    path = tmp_path / "careful.toml"
    for table, line, text in (
        ("up", f'export = ["{tmp_path}/none"]', "no such directory"),
        ("up", f'export = ["{tmp_path}:rx"]', "no such directory"),
        ("up", f'export = ["{tmp_path}:rw"]', "anyone who can send to the port could write"),
        ("up", f'keys = "{tmp_path}"', "this host has no key"),
        ("up", "queue = 1\nqueues = 2", "selects one queue"),
        ("up", 'seal = "encrypt@no.host.invalid"', "unknown host"),
        ("socket", 'group = "no-such-group"', "there is no such group"),
        ("instance.eth1", f'export = ["{tmp_path}/none"]', "no such directory"),
    ):
        path.write_text(f"[{table}]\n{line}\n")
        assert run(["config", "check", str(path)]) == 1
        out = capsys.readouterr().out
        table = "up" if table == "socket" else table
        assert f"{path}: [{table}]: " in out, line
        assert text in out, line
    assert run(["config", "check", "--json", str(path)]) == 1
    (found,) = json.loads(capsys.readouterr().out)["refused"]["[instance.eth1]"]
    assert found["check"] == "exports"


def test_example__names_every_key_and_changes_nothing() -> None:
    example = (ROOT / "tools/packaging/careful.toml").read_text()
    bare = config.parse(example, FILE)
    assert (bare.up, bare.nodes, bare.tunes) == (UpOptions(), {}, {})
    whole = re.sub(r"^#(\w+ = )", r"\1", example, flags=re.M)
    config.parse(whole, FILE)
    tree = tomllib.loads(whole)
    keys = {*tree["up"], *tree["instance"]["eth1"]}
    assert keys == {one.name for one in fields(UpOptions)} | {"tune"}
    assert tree["up"]["rx_buffers"] == DEFAULTS.rx_buffers
    assert set(tree) == {"nodes", "up", "instance", "socket", "transfer", "state"}

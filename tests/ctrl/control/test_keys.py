"""Key files as `carefulctl key` writes them, and refused ones."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from careful.cli.main import cli
from careful.control.checks import option_checks
from careful.control.options import keys
from careful.control.options.keys import Keys, Trusted
from careful.control.options.up_options import UpOptions
from careful.errors import CarefulError
from click.testing import CliRunner

#: A pair of the public vectors in tests/datapath/secure/test_noise.c.
PRIVATE = "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1"
PUBLIC = "6bc3822a2aa7f4e6981d6538692b3cdf3e6df9eea6ed269eb41d93c22757b75a"


def text(key: str) -> str:
    """Returns a hexadecimal key in the files' form."""
    return base64.b64encode(bytes.fromhex(key)).decode()


@pytest.fixture
def place(tmp_path: Path) -> Keys:
    """A directory with a key in it."""
    one = Keys(tmp_path / "keys")
    one.new()
    return one


def test_new__only_its_owner_can_read_it(place: Keys) -> None:
    assert place.directory.stat().st_mode & 0o777 == 0o700
    private = place.directory / "private"
    assert private.stat().st_mode & 0o777 == 0o600
    public = place.public()
    assert public is not None
    assert keys.check(public) == public
    with pytest.raises(CarefulError, match="this host has a key"):
        place.new()
    assert place.public() == public
    private.write_text(text(PRIVATE) + "\n")
    assert place.public() == text(PUBLIC)


def test_new__a_second_key_then_replaces_the_first(place: Keys) -> None:
    first = place.public()
    later = place.new(later=True)
    assert (place.public(), place.public("next")) == (first, later)
    assert place.new(instead=True) == later
    assert (place.public(), place.public("next")) == (later, None)
    assert place.new(instead=True) not in (first, later)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_private__that_others_can_read_is_refused(place: Keys, mode: int) -> None:
    (place.directory / "private").chmod(mode)
    with pytest.raises(CarefulError, match="others may read this key"):
        place.public()


def test_trust__the_latest_comes_first(place: Keys) -> None:
    one = Trusted("10.0.0.2", text(PUBLIC), "h2")
    assert place.trust("10.0.0.2", text(PUBLIC), "h2") == one
    other = Keys(place.directory / "other").new()
    place.trust("10.0.0.2", other, "h2")
    six = place.trust("fe80::1", text(PUBLIC), "[fe80::1]")
    place.trust("10.0.0.2", text(PUBLIC), "h2")
    assert place.trusted() == [one, six, Trusted("10.0.0.2", other, "h2")]
    assert six.name == ""
    assert place.remove(other) == [Trusted("10.0.0.2", other, "h2")]
    assert place.remove("h2") == [one]
    assert place.trusted() == [six]
    with pytest.raises(CarefulError, match="is neither a host with a trusted key"):
        place.remove("h2")


@pytest.mark.parametrize(
    "bad", ["", "AAAA", text(PUBLIC)[:-4], text(PUBLIC) + "=", text("00" * 32), "é" * 44]
)
def test_trust__malformed_keys(place: Keys, bad: str) -> None:
    with pytest.raises(CarefulError, match=r"must be a key|not a valid public key"):
        place.trust("10.0.0.2", bad)
    assert place.trusted() == []


def test_trust__our_own_is_refused(place: Keys) -> None:
    with pytest.raises(CarefulError, match="this host's own"):
        place.trust("10.0.0.2", place.public() or "")


def test_trusted__an_invalid_line_is_named(place: Keys) -> None:
    (place.directory / "trusted").write_text("# a comment\n\n10.0.0.2\n")
    with pytest.raises(CarefulError, match="line 3: must be ADDRESS KEY"):
        place.trusted()


def test_in_effect__the_default_only_if_there_is_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "DEFAULT", tmp_path)
    assert keys.in_effect(UpOptions()).keys is None
    Keys(tmp_path).new()
    assert keys.in_effect(UpOptions()).keys == str(tmp_path)
    assert keys.in_effect(UpOptions(keys="none")).keys is None
    assert keys.in_effect(UpOptions(keys="/some/where")).keys == "/some/where"


def test_command__as_json(tmp_path: Path) -> None:
    def call(*args: str) -> dict[str, object]:
        done = CliRunner().invoke(cli, ["key", *args, "--keys", str(tmp_path), "--json"])
        assert done.exit_code == 0, done.output
        found: dict[str, object] = json.loads(done.stdout)
        return found

    public = call("new")["key"]
    assert call("show")["key"] == public
    call("trust", "10.0.0.2", text(PUBLIC))
    line = {"address": "10.0.0.2", "name": None, "key": text(PUBLIC)}
    assert call("list")["trusted"] == [line]
    assert call("remove", "10.0.0.2")["removed"] == [line]
    assert call("list")["trusted"] == []


def test_cluster__only_its_owner_can_read_it(tmp_path: Path) -> None:
    argv = ["key", "new", "--cluster", "--keys", str(tmp_path)]
    done = CliRunner().invoke(cli, argv)
    path = Path(done.output.strip())
    assert done.exit_code == 0
    assert path == tmp_path / "cluster"
    assert path.stat().st_mode & 0o777 == 0o600
    first = path.read_text()
    assert len(base64.b64decode(first)) == 32
    again = CliRunner().invoke(cli, argv)
    assert "the cluster key exists; --replace makes another" in str(again.exception)
    assert path.read_text() == first
    assert CliRunner().invoke(cli, [*argv, "--replace"]).exit_code == 0
    assert path.read_text() != first


def test_trust__several_at_once(place: Keys) -> None:
    """Like a program that sets up a cluster: all are stored, and none fails."""
    argv = [sys.executable, "-c", "from careful.cli.start import main; main()", "key", "trust"]
    argv += ["--keys", str(place.directory)]
    others = [subprocess.Popen([*argv, f"10.0.0.{k}", text(PUBLIC)]) for k in range(1, 13)]
    assert [one.wait(60) for one in others] == [0] * 12
    assert {one.address for one in place.trusted()} == {f"10.0.0.{k}" for k in range(1, 13)}


def test_trust__more_than_carefuld_reads(place: Keys) -> None:
    """carefuld reads a file completely or not at all, and reports that only in its log."""
    several = [Trusted(f"10.1.{k >> 8}.{k & 255}", text(PUBLIC), "name") for k in range(1100)]
    path = place.directory / "trusted"
    place._put(several[:900])
    before = path.read_text()
    with pytest.raises(CarefulError, match="more than 65535 bytes"):
        place._put(several)
    assert path.read_text() == before
    source = (Path(__file__).parents[3] / "datapath/secure/keys.c").read_text()
    assert "TEXT_BYTES = 1 << 16" in source


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"h2 {text(PUBLIC)}", "'h2' must be an address"),
        (f"10.0.0 {text(PUBLIC)}", "'10.0.0' must be an address"),
        ("10.0.0.2 c2hvcnQ=", "host 10.0.0.2: .*must be a key"),
        (f"10.0.0.2 {text('00' * 32)}", "host 10.0.0.2: .*is not a valid public key"),
    ],
)
def test_doctor__lines_that_carefuld_refuses(place: Keys, line: str, said: str) -> None:
    (place.directory / "trusted").write_text(f"10.0.0.3 {text(PUBLIC)}\n{line}\n")
    found = option_checks.keyed(UpOptions(keys=str(place.directory)))
    assert found.state == "fail"
    assert re.search(said, found.text)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["private", "trusted"])
def test_doctor__files_of_another_user(place: Keys, name: str) -> None:
    place.trust("10.0.0.2", text(PUBLIC))
    os.chown(place.directory / name, 12345, 12345)
    found = option_checks.keyed(UpOptions(keys=str(place.directory)))
    assert (found.state, "belongs to another user" in found.text) == ("fail", True)


def test_doctor__reports_faults_that_up_would_refuse(place: Keys) -> None:
    def found() -> tuple[str, str]:
        one = option_checks.keyed(UpOptions(keys=str(place.directory)))
        return one.state, one.text + one.advice

    assert found()[0] == "warn"
    assert "key trust HOST KEY" in found()[1]
    place.trust("10.0.0.2", text(PUBLIC), "h2")
    place.new_cluster()
    assert found() == ("ok", f"{place.directory}: 1 host is trusted, and a key of the cluster")
    for name, mode in (("trusted", 0o666), ("cluster", 0o640), ("private", 0o604)):
        path = place.directory / name
        right = path.stat().st_mode
        path.chmod(mode)
        state, why = found()
        assert state == "fail"
        assert f"{path}: others may" in why
        path.chmod(right)
    (place.directory / "private").unlink()
    assert found()[0] == "fail"
    assert option_checks.keyed(UpOptions(keys="none")).state == "ok"
    assert option_checks.keyed(UpOptions(keys="none", seal="auth")).state == "fail"

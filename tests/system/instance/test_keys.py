"""Sessions between real daemons with keys, without keys, and with wrong keys."""

from __future__ import annotations

import subprocess

import pytest
from hosts import MIB, Host, Hosts, make_file, wait_for
from keyed import Keyed


@pytest.fixture
def keyed(hosts: Hosts) -> Keyed:
    return Keyed(*hosts())


def peer(host: Host) -> dict[str, object]:
    """Returns a host's only peer."""
    found: dict[str, object] = host.status()["peers"][0]
    return found


def refused(host: Host) -> int:
    """Returns how many HELLOs a host refused for lack of a key."""
    return int(host.status()["counters"]["ctrl_key"])


def test_keys__files_there_and_back(keyed: Keyed) -> None:
    a, b = keyed.hosts
    keyed.up()
    kept = make_file(b.export / "big", MIB)
    a.ctl("get", "h2:big", a.own / "big")
    assert (a.own / "big").read_bytes() == kept
    b.ctl("ls", "h1:")
    for host in keyed.hosts:
        assert host.status()["keyed"] is True
        assert refused(host) == 0
    a.assert_nothing_lost()


def test_keys__a_host_without_the_key_gets_nothing(keyed: Keyed) -> None:
    a, b = keyed.hosts
    a.up()  # without
    b.up("--keys", keyed.folder(b))
    (b.export / "file").write_text("secret")
    failed = a.ctl("get", "h2:file", a.own, check=False)
    assert failed.returncode == 1
    assert "it does not trust our key, or we have none" in failed.stderr
    assert refused(b) > 0
    wait_for(lambda: "without a key that is trusted here" in b.log, "line in the log")
    a.down()
    keyed.key(a, "new", "--replace")  # and b is not told
    a.up("--keys", keyed.folder(a))
    before = refused(b)
    assert "does not trust our key" in a.ctl("ls", "h2:", check=False).stderr
    assert "does not trust our key" in b.ctl("ls", "h1:", check=False).stderr
    assert refused(b) > before
    assert not (a.own / "file").exists()


def read_again(host: Host, times: int) -> None:
    """Waits until a host's carefuld has read its keys this often since its start."""
    wait_for(lambda: host.log.count("keys: read again") >= times, "new keys")


def test_keys__another_one_beside_a_transfer(keyed: Keyed) -> None:
    """The transfer cannot end before this side has read all: more than can be under way."""
    a, b = keyed.hosts
    kept = make_file(b.export / "big", 48 * MIB)
    keyed.up()
    first = keyed.public(b)
    argv = a.lab.argv("h1", "carefulctl", "get", "--block-bytes", "64KiB", "h2:big", "-")
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as transfer:
        assert transfer.stdout
        got = transfer.stdout.read(8 * MIB)
        keyed.key(a, "trust", "h2", str(keyed.key(b, "new", "--later")["key"]))
        read_again(a, 1)
        got += transfer.stdout.read(8 * MIB)
        keyed.key(b, "new", "--replace")
        read_again(b, 1)
        got += transfer.stdout.read(8 * MIB)
        assert peer(a)["epochs"] == 1  # nothing ended
        keyed.key(a, "remove", first)
        wait_for(lambda: peer(a)["epochs"] == 2 and peer(a)["state"] == "up", "new epoch")
        assert transfer.poll() is None
        got += transfer.stdout.read()
    assert transfer.returncode == 0
    assert got == kept


def test_keys__another_one_without_an_end_and_then_none(keyed: Keyed) -> None:
    a, b = keyed.hosts
    keyed.up()
    a.ctl("ls", "h2:")
    first = keyed.public(b)
    keyed.key(a, "trust", "h2", str(keyed.key(b, "new", "--later")["key"]))
    keyed.key(b, "new", "--replace")
    for host in keyed.hosts:
        wait_for(lambda host=host: "keys: read again" in host.log, "new keys")  # type: ignore[misc]
    a.ctl("ls", "h2:")
    assert peer(a)["epochs"] == 1  # nothing ended
    keyed.key(a, "remove", first)
    wait_for(lambda: peer(a)["epochs"] == 2 and peer(a)["state"] == "up", "new epoch")
    a.ctl("ls", "h2:")
    b.ctl("ls", "h1:")
    keyed.key(a, "remove", "h2")
    wait_for(lambda: peer(a)["state"] == "failed", "end of the session")
    errors = a.ctl("ls", "h2:", check=False).stderr
    assert "no key is trusted at its address" in errors
    assert "does not trust our key" in b.ctl("ls", "h1:", check=False).stderr


@pytest.mark.parametrize("name", ["private", "trusted"])
def test_keys__files_that_are_not_right_are_refused(keyed: Keyed, name: str) -> None:
    a, _ = keyed.hosts
    path = keyed.folder(a) / name
    path.chmod(0o666)
    failed = a.ctl("up", "eth1", "--keys", keyed.folder(a), check=False)
    assert failed.returncode == 1
    assert f"{path}: others may" in failed.stderr


def test_keys__none_is_told_of(hosts: Hosts) -> None:
    a, _ = hosts()
    done = a.ctl("up", "eth1", "--keys", "none")
    assert "no keys: any host that reaches UDP port 51966 can connect" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert a.status()["keyed"] is False
    a.down()
    export = ("--export", f"{a.export}:rw")
    failed = a.ctl("up", "eth1", *export, "--keys", "none", check=False)
    assert failed.returncode == 1
    assert "make keys (carefulctl key new), or add --insecure" in failed.stderr
    a.ctl("up", "eth1", *export, "--keys", "none", "--insecure")

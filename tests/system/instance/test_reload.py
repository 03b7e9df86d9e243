"""`up --reload` changes options of a carefuld that moves a file, and its session continues."""

from __future__ import annotations

import json
import signal

from hosts import CRAWLING, Host, finish, make_file, moving


def test_reload__beside_a_transfer(pair: tuple[Host, Host]) -> None:
    a, b = pair
    more = b.own / "more"
    more.mkdir()
    make_file(more / "f", 5)
    (b.export / "big").write_bytes(b"x" * (256 << 20))  # minutes of it
    options = ("--export", f"{b.export}:rw,owners,devices", "--insecure")
    transfer = a.start("get", *CRAWLING, "h2:big", a.own)
    moving(b)
    pid, (before,) = b.pid, b.status()["peers"]

    other = ("up", "eth1", *options, "--export", more, "--sync", "300ms")
    done = b.ctl(*other, "--reload")
    assert (
        f"--export is {b.export}:rw,owners,devices {more}, not {b.export}:rw,owners,devices"
        in done.stdout
    )
    assert "--sync is 300 ms, not 200 ms" in done.stdout
    moving(b)
    assert a.ctl("ls", "h2:more").stdout == "f\n"
    # An impossible option is refused by name; the others take effect.
    for words, text in (
        ((*options, "--peers", "2"), "restart is needed: --peers is 8, not 2; nothing has changed"),
        ((*options, "--export", "/nowhere"), "/nowhere"),
        (options[:2], "anyone who can send to the port could write"),  # without --insecure
        (("--export", f"{more}:rw"), "anyone who can send to the port could write"),
    ):
        wrong = b.ctl("up", "eth1", *words, "--reload", check=False)
        assert wrong.returncode == 1
        assert text in wrong.stderr
    assert a.ctl("ls", "h2:more").stdout == "f\n"
    assert "is already up with these options" in b.ctl(*other).stdout
    assert json.loads(b.ctl(*other, "--reload", "--json").stdout)["changed"] == []

    (after,) = b.status()["peers"]
    assert (b.pid, after["epochs"], after["state"]) == (pid, before["epochs"], "up")
    b.assert_nothing_lost()
    assert transfer.poll() is None
    transfer.send_signal(signal.SIGINT)
    assert finish(transfer)[0] == 130


def test_reload__of_no_instance(pair: tuple[Host, Host]) -> None:
    a, _ = pair
    a.down()
    done = a.ctl("up", "eth1", "--reload", check=False)
    assert done.returncode == 1
    assert "is not up on eth1; first: carefulctl up eth1" in done.stderr
    # A carefuld without exports has dropped the capabilities that exports need.
    a.ctl("up", "eth1")
    done = a.ctl("up", "eth1", "--export", a.own, "--reload", check=False)
    assert done.returncode == 1
    assert "any --export: carefuld was started without exports" in done.stderr

"""A firewall that drops control messages while frames pass below it: all commands report it."""

from __future__ import annotations

import json
import re

import pytest
from hosts import MIB, Host, Hosts, finish, make_file, moving, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

#: Options of a get that ends by itself in eight minutes.
TRICKLE = ("--block-bytes", "4KiB", "--rate-limit", "128KiB")
#: A rule that drops datagrams to the port in the kernel, which frames do not pass through.
_RULE = ("iif", "eth1", "ipproto", "udp", "dport", "51966", "prio", "1", "blackhole")


def drop_control(host: Host, drop: bool) -> None:
    """Drops input like a firewall's rule, by iproute2's means."""

    def rule(*words: str) -> None:
        host.lab.run(host.name, "ip", "rule", *words)

    if drop:
        rule("add", "prio", "2", "lookup", "local")
        rule("add", *_RULE)
        rule("del", "prio", "0")
    else:
        rule("del", *_RULE)


def control(host: Host) -> list[tuple[str, str]]:
    """Returns the state of control messages, and doctor's report and advice."""
    found = json.loads(host.ctl("doctor", "eth1", "--json").stdout)["findings"]
    said = (one for one in found if one["check"] == "control")
    return [(one["state"], f"{one['text']} {one['advice']}") for one in said]


def test_status__says_which_peer_does_not_answer_and_since_when(hosts: Hosts) -> None:
    """A peer that had failed was "connecting" while it was tried again: "all is well", status 0."""
    a, b = hosts()
    for host in (a, b):
        host.up()
    make_file(b.export / "f", 1000)
    a.ctl("get", "h2:f", "null:")
    assert a.status()["peers"][0]["away_ms"] == 0
    drop_control(b, True)
    b.down()
    for _ in range(2):
        get = a.start("get", "h2:f", "null:")
        wait_for(lambda: a.ctl("status", check=False).returncode == 3, "trouble")
        done = a.ctl("status", check=False)
        assert "not well" in done.stdout.splitlines()[0]
        assert re.search(r"h2: \w+.*, no (answer|session) for [\d.]+ (s|min)", done.stdout)
        finish(get)
    assert a.status()["peers"][0]["away_ms"] > 5000


def test_control_dropped__status_doctor_and_log_say_so(hosts: Hosts) -> None:
    a, b = hosts()
    for host in (a, b):
        host.up("--sync", "50ms")  # asked every 500 ms, not every 2 s
    make_file(b.export / "f", 64 * MIB)
    get = a.start("get", "h2:f", a.own, *TRICKLE)
    moving(a)
    assert [state for state, _ in control(a)] == ["ok"]
    drop_control(b, True)
    for host, other in ((a, b), (b, a)):
        wait_for(lambda host=host: "no control messages" in host.log, f"{host.name}'s log")
        ((state, text),) = control(host)
        assert state == "warn"
        assert f"{other.name} arrive, but no control messages: does a firewall" in text
        text, _, advice = text.partition(" on both hosts ")
        assert "udp dport 51966 accept" in advice
        said = text[text.index("arrive, but") :]  # status has this host's names
        assert said in " ".join(host.ctl("status", "-v").stdout.split())
    moving(a)
    assert get.poll() is None  # traffic continues
    drop_control(b, False)
    for host in (a, b):
        wait_for(
            lambda host=host: "control messages arrive again" in host.log, f"{host.name}'s log"
        )
        assert host.log.count("no control messages") == 1
        (peer,) = host.status()["peers"]
        assert (peer["control_unheard"], peer["epochs"]) == (False, 1)
    get.kill()
    get.wait()

"""doctor HOST: the route, the firewall, and frames in both directions."""

from __future__ import annotations

import json
import shutil

import pytest
from hosts import PINS, Host, Hosts, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

PORT = 51977
UDP = ("ipproto", "udp")
OURS, THEIRS = (*UDP, "sport", str(PORT)), (*UDP, "dport", str(PORT))


def ip(host: Host, *args: str) -> None:
    host.lab.run(host.name, "ip", *args)


def firewall(host: Host, *rule: str) -> None:
    """Drops the rule's packets by iproute2's means."""
    ip(host, "rule", "add", "prio", "2", "lookup", "local")
    ip(host, "rule", "add", "prio", "1", *rule, "blackhole")
    ip(host, "rule", "del", "prio", "0")


def doctor(host: Host, *names: str, check: str) -> list[tuple[str, str]]:
    """Returns the state, text and advice of a check."""
    done = host.ctl("doctor", *names, "--json", check=False)
    found = json.loads(done.stdout)["findings"]
    text = [
        (one["state"], f"{one['text']} ({one['advice']})") for one in found if one["check"] == check
    ]
    assert (done.returncode == 1) == any(one["state"] == "fail" for one in found)
    return text


@pytest.fixture
def both(hosts: Hosts) -> tuple[Host, Host]:
    """Yields two hosts with careful up."""
    h1, h2 = hosts()
    for host in (h1, h2):
        host.up("--port", str(PORT))
    return h1, h2


def test_doctor_host__all_is_well(both: tuple[Host, Host]) -> None:
    h1, _ = both
    ((state, text),) = doctor(h1, "10.77.0.2", check="frames")
    assert state == "ok"
    assert f"MTU {h1.status()['mtu_bytes']}) pass to 10.77.0.2, and its answers come back" in text
    ((state, _),) = doctor(h1, "eth1", "fd77::2", check="host")
    assert state == "ok"
    assert "another host" in h1.ctl("doctor", "10.77.0.1", check=False).stderr


def test_doctor_host__no_etc_protocols(both: tuple[Host, Host]) -> None:
    """A minimal Debian lacks it. doctor once warned there that the kernel had no route."""
    h1, _ = both
    hide = 'mount --bind /dev/null /etc/protocols && exec "$@"'
    command = ("carefulctl", "doctor", "10.77.0.2", "--json")
    done = h1.lab.run("h1", "unshare", "--mount", "sh", "-c", hide, "-", *command)
    (one,) = (one for one in json.loads(done.stdout)["findings"] if one["check"] == "routing")
    assert one["state"] == "ok", one


def test_doctor_host__a_program_owns_its_queue(both: tuple[Host, Host]) -> None:
    """Its frames arrived, yet doctor denied that, and ping called its careful older."""
    h1, h2 = both
    h2.down()
    opened = f'with careful.open("eth1", port={PORT}) as node:\n    while True: node.wait()'
    program = h2.lab.start("h2", "python", "-c", f"import careful\n{opened}")
    wait_for((PINS / h2.lab.instance("h2")).exists, "node")
    try:
        ((state, _),) = doctor(h1, "10.77.0.2", check="frames")
        assert state == "ok"
        done = h1.ctl("ping", "10.77.0.2", "-c", "1", check=False)
        assert "a program that owns its queue answers no measurements" in done.stderr
    finally:
        program.kill()
        program.wait(timeout=60)


@pytest.mark.parametrize("where", ["here", "there"])
def test_doctor_host__frames_without_xdp(both: tuple[Host, Host], where: str) -> None:
    h1, h2 = both
    for host, name in ((h1, "here"), (h2, "there")):
        if where == name:
            shown = host.lab.run(host.name, "bpftool", "-j", "net", "show", "dev", "eth1").stdout
            program = json.loads(shown)[0]["xdp"][0]["id"]
            links = json.loads(host.lab.run(host.name, "bpftool", "-j", "link", "show").stdout)
            (link,) = (str(one["id"]) for one in links if one.get("prog_id") == program)
            host.lab.run(host.name, "bpftool", "link", "detach", "id", link)
    said = (
        "one way only: they reach 10.77.0.2"
        if where == "here"
        else "but frames do not arrive there"
    )
    ((state, text),) = doctor(h1, "eth1", "10.77.0.2", check="frames")
    assert state == "fail"
    assert said in text


def test_doctor_host__a_firewall_drops_the_port(both: tuple[Host, Host]) -> None:
    h1, h2 = both
    firewall(h2, "iif", "eth1", *THEIRS)
    ((state, text),) = doctor(h1, "eth1", "10.77.0.2", check="host")
    assert state == "fail"
    allow = (f"--add-port={PORT}/udp", f"ufw allow {PORT}/udp", f"udp dport {PORT} accept")
    for said in ("does not answer", *allow):
        assert said in text
    failed = h1.ctl("ls", "10.77.0.2:", check=False)
    for said in allow:
        assert said in failed.stderr
    firewall(h1, *OURS)
    assert {state for state, _ in doctor(h1, "eth1", "10.77.0.2", check="routing")} == {"warn"}
    assert [state for state, _ in doctor(h1, "eth1", "10.77.0.2", check="host")] == ["fail"]


@pytest.mark.skipif(not shutil.which("nft"), reason="nft (Debian's nftables) is not installed")
@pytest.mark.parametrize("dropping", [("h2",), ("h1",), ("h1", "h2")], ids="-".join)
def test_doctor_host__a_firewall_under_a_live_session(
    both: tuple[Host, Host], dropping: tuple[str, ...]
) -> None:
    """Doctor said that control messages passed and frames did not; the reverse was true."""
    h1, _ = both
    h1.ctl("ls", "10.77.0.2:")
    chain = "add chain inet filter input { type filter hook input priority 0; }"
    rule = f"add rule inet filter input udp dport {PORT} drop"
    for name in dropping:
        h1.lab.run(name, "nft", f"add table inet filter; {chain}; {rule}")
    ((state, text),) = doctor(h1, "10.77.0.2", check="control")
    assert state == "fail"
    assert "frames pass to 10.77.0.2 and back, but control messages do not" in text
    assert f"drops UDP port {PORT}" in text
    for said in (f"--add-port={PORT}/udp", f"ufw allow {PORT}/udp", f"udp dport {PORT} accept"):
        assert said in text
    assert ("; here nft drops" in text) == ("h1" in dropping)
    for check in ("host", "frames"):
        assert doctor(h1, "10.77.0.2", check=check) == []
    h1.ctl("ls", "10.77.0.2:")
    for name in dropping:
        h1.lab.run(name, "nft", f"insert rule inet filter input udp dport {PORT} accept")
    for check in ("host", "frames"):
        assert [state for state, _ in doctor(h1, "10.77.0.2", check=check)] == ["ok"]


@pytest.mark.skipif(not shutil.which("nft"), reason="nft (Debian's nftables) is not installed")
def test_doctor__names_nft_and_its_advice_works(both: tuple[Host, Host]) -> None:
    h1, h2 = both

    def found() -> tuple[str, str]:
        (one,) = doctor(h2, "eth1", check="firewall")
        return one

    assert found()[0] == "ok"
    hook = "{ type filter hook input priority 0; policy drop; ct state established accept; }"
    h2.lab.run("h2", "nft", f"add table ip ours; add chain ip ours in {hook}")
    failed = h1.ctl("ls", "10.77.0.2:", check=False)
    assert "do both firewalls let its UDP port in" in failed.stderr
    state, text = found()
    assert state == "warn"
    accept = f"nft insert rule ip ours in udp dport {PORT} accept"
    assert text == f"nft drops UDP port {PORT} (table ip ours, chain in: policy drop) ({accept})"
    h2.lab.run("h2", *accept.split())
    assert found()[0] == "ok"
    h1.ctl("ls", "10.77.0.2:")


def test_doctor_host__a_smaller_mtu_on_the_way(hosts: Hosts) -> None:
    h1, h2, _ = hosts(hosts=3)
    for host in (h1, h2):
        host.up()
    switch = f"careful-{h1.lab.name}-sw"
    h1.lab.run("h1", "ip", "-n", switch, "link", "set", "p2", "mtu", "1300")
    ((state, text),) = doctor(h1, "eth1", "10.77.0.2", check="frames")
    assert state == "warn"
    assert "a link on the way has a smaller MTU" in text


@pytest.mark.parametrize("family", [4, 6])
def test_doctor__policy_routing_of_its_packets(both: tuple[Host, Host], family: int) -> None:
    h1, _ = both
    near = "10.77.0.2" if family == 4 else "fd77::2"
    gateway = "10.77.0.9" if family == 4 else "fd77::9"
    h1.ctl("ls", f"{near}:" if family == 4 else f"[{near}]:")

    def found() -> tuple[str, str]:
        (one,) = doctor(h1, "eth1", check="routing")
        return one

    assert found()[0] == "ok"
    run = (f"-{family}",)
    ip(h1, *run, "rule", "add", "prio", "100", *OURS, "lookup", "100")
    ip(h1, *run, "route", "replace", near, "via", gateway, "dev", "eth1", "table", "100")
    state, text = found()
    assert state == "ok"
    assert f"eth1 via {gateway}; by an ip rule, other packets leave by eth1" in text
    ip(h1, *run, "rule", "add", "prio", "99", "oif", "eth1", "lookup", "main")
    state, text = found()
    assert state == "warn"
    assert f"leave by eth1 via {gateway}, but frames by eth1" in text
    ip(h1, *run, "rule", "add", "prio", "98", *OURS, "unreachable")
    state, text = found()
    assert state == "warn"
    assert "has no route for UDP packets" in text
    assert f"sport {PORT} dport {PORT}" in text

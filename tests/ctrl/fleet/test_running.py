"""`carefulctl fleet` over hosts that are shell scripts: failed hosts are named, others continue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from careful.cli.main import run
from careful.fleet.hosts import Host
from careful.fleet.running import Job, _error, in_turns

#: $1: the host. Fakes its carefulctl.
SCRIPT = r"""#!/bin/sh
host=$1; shift 2
echo "$host $*" >> calls
case $host in
    mute) ;;
    full) echo '[1, 2]' ;;
    bad) echo "carefulctl: eth1: no such device" >&2; exit 1 ;;
    told) echo '{"error": "is busy\u001b[31m", "exit_status": 1}'; exit 1 ;;
    dead) kill -9 $$ ;;
    slow) exec sleep 60 ;;
    endless) exec yes ;;
    loud) exec yes >&2 ;;
    odd) printf '{"instances": [1, {"instance": 2, "ifname": "\\u001b[31m", "driver": null,'
       printf '"window_buffers": ["\\u001b[31m"], "exports": [3, {"path": "\\u001b[31m"}],'
       printf '"peers": [7, {"state": [], "lost_here_frames": "x"}, {"address": {}}]}],'
       printf '"paths": [4, {"decisions": [{"why": 5}]}], "inputs": 6,'
       printf '"round_trip_minima": [8, {"size_bytes": 1, "least_us": NaN}, {"size_bytes": []}]}' ;;
    m?) least=25
        case "$host $*" in
            "m1 measure blackbox m4 "*) # disturbed when it is measured first
                [ "$(grep -c '^m1 measure blackbox m4 ' calls)" = 1 ] && least=90 ;;
            "m2 measure blackbox m3 "*) least=70 ;;
        esac
        printf '{"round_trip_minima": [{"size_bytes": 64, "least_us": %s}],' $least
        printf '"instances": [{"instance": "of-%s"}]}' $host ;;
    *) printf '{"schema": 1, "command": "status", "inputs": {}, "instances": [{"ifname": "eth1",'
       printf '"window_buffers": 64, "peers": [{"state": "up", "lost_here_frames": 2}]}]}' ;;
esac
"""


PROGRAM = "from careful.cli.start import main; main()"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "on"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return path


def fleet(script: Path, *names: str) -> None:
    tables = "".join(f"[host.{name}]\n" for name in names)
    Path("fleet.toml").write_text(f'on = "{script} {{}}"\nup = "--peers 4"\n{tables}')


def test_in_turns__how_each_ended(script: Path) -> None:
    names = ("good", "mute", "full", "bad", "told", "dead", "slow")
    hosts = [Host(name, (str(script), name), name, "eth1") for name in names]
    hosts.append(Host("none", ("/proc/nonexistent/ssh",), "none", "eth1"))
    begun = time.monotonic()
    found = in_turns([[Job(one, ("status",), 30 if one.name != "slow" else 3) for one in hosts]])
    assert time.monotonic() - begun < 50  # does not wait for slow's 60 seconds
    assert {one.host: one.error for one in found} == {
        "good": "",
        "mute": "it printed no JSON",
        "full": "it printed no JSON",
        "bad": "eth1: no such device",
        "told": "is busy\\x1b[31m",
        "dead": "ended by signal 9",
        "slow": "did not end within 3 s",
        "none": "/proc/nonexistent/ssh: No such file or directory",
    }
    assert list(found[0].figures) == ["inputs", "instances"]


@pytest.mark.parametrize("name", ["endless", "loud"])
def test_run_job__endless_output(script: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The job ends before its time limit, because it prints too much."""
    monkeypatch.setattr("careful.fleet.running._OUTPUT_MAX", 1 << 20)
    host = Host(name, (str(script), name), name, "eth1")
    (found,) = in_turns([[Job(host, ("status",), 30)]])
    assert found.error == "printed more than 1 MiB"


def test_error__a_host_that_is_not_well_has_answered() -> None:
    """`status` ends with 3 if not all is well, or if a carefuld does not answer."""
    assert _error(3, {"instances": [], "mute": {}}, b"") == ""
    assert _error(3, {"instances": [], "mute": {"eth2": "no answer"}}, b"") == "ended with status 3"


def test_odd__figures_of_another_shape(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A host of another release, or a lying one, is a row like any other."""
    fleet(script, "odd", "h1")
    for name in ("status", "tune", "measure"):
        assert run(["fleet", name]) == 0
        out = capfd.readouterr().out
        assert "odd" in out
        assert "\x1b" not in out
        assert "nan" not in out


def test_status__names_the_failed_node(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fleet(script, "h1", "bad", "h2")
    assert run(["fleet", "status"]) == 3
    out, err = capfd.readouterr()
    assert err == "carefulctl: bad: eth1: no such device\n"
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["h1", "h2"]
    assert "1 of 1" in out
    assert run(["fleet", "status", "h1", "h2"]) == 0
    assert run(["fleet", "status", "bad", "--json"]) == 1
    found = json.loads(capfd.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert found["hosts"][0]["error"] == "eth1: no such device"


def test_up__with_the_file_s_words(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fleet(script, "h1", "h2")
    assert run(["fleet", "up", "h2"]) == 0
    assert Path("calls").read_text() == "h2 up eth1 --peers 4 --json\n"
    assert capfd.readouterr().out == "up on 1 of 1 hosts\n"


def test_tune__every_pair(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fleet(script, "h1", "h2", "bad")
    assert run(["fleet", "tune"]) == 3
    assert sorted(Path("calls").read_text().splitlines()) == sorted(
        f"{a} tune auto eth1 --once --peer {b} --json"
        for a in ("h1", "h2", "bad")
        for b in ("h1", "h2", "bad")
        if a != b
    )
    assert "bad to h1: eth1" in capfd.readouterr().err
    assert run(["fleet", "tune", "h1"]) == 2


def test_fleet__ended_by_a_signal_leaves_no_process(script: Path) -> None:
    fleet(script, "slow")
    command = [sys.executable, "-c", PROGRAM, "fleet", "status"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while not Path("calls").exists():
        assert process.poll() is None
        time.sleep(0.02)
    group = int(children(process.pid)[0])
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert process.stderr
    process.stderr.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_measure__a_matrix_of_answers(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fleet(script, "m1", "m2", "bad")
    assert run(["fleet", "measure", "--time", "2s"]) == 3
    out, err = capfd.readouterr()
    assert "bad to m1: eth1: no such device" in err
    assert "m1 to bad" not in err  # the script answers; a host would not
    calls = Path("calls").read_text().splitlines()
    assert "m1 measure blackbox m2 --instance of-m1 --time 2.0s --sizes 8 --json" in calls
    row = next(line for line in out.splitlines() if line.startswith("m1"))
    assert row.split() == ["m1", "12.5", "-", "12.5"]
    assert "failed" in out


def test_measure__odd_pairs_are_measured_twice(
    script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet(script, "m1", "m2", "m3", "m4")
    assert run(["fleet", "measure", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["measured_twice"] == [["m1", "m4"], ["m2", "m3"]]
    assert [(one["from"], one["to"], one["value"]) for one in found["odd"]] == [("m2", "m3", 35.0)]
    calls = [line for line in Path("calls").read_text().splitlines() if "blackbox" in line]
    assert len(calls) == 12 + 2

"""Metrics as Prometheus reads them; the dashboard and the alerts use existing metrics."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("prometheus_client")

from careful._abi import ffi, lib
from careful.control.instance import exporter, instances, status
from careful.control.instance.exporter import Seen
from careful.control.instance.instances import Instance
from careful.control.instance.records import counters, peer
from careful.control.instance.usage import parse
from careful.control.options.config import Config
from careful.control.options.exports import Export
from careful.errors import CarefulError
from careful.render.instance.metrics import metrics_text, serve
from careful.versions import versions
from hosts import Host, make_file, wait_for
from in_effect import IN_EFFECT
from prometheus_client.parser import text_string_to_metric_families

PACKAGING = Path(__file__).parents[3] / "tools" / "packaging" / "prometheus"


def an_answer() -> bytes:
    """Returns an answer to USE: three fetches, one of them endless, and an export."""
    head = ffi.new("struct careful_ipc_use *", {"exports_count": 1})
    head.get.failed, head.get.sum_ns = 4, 10**10
    head.get.buckets[0], head.get.buckets[3] = 1, 1
    head.get.buckets[lib.CAREFUL_IPC_BUCKETS - 1] = 1
    export = ffi.new("struct careful_export_use *", {"requests": 9, "written_bytes": 1 << 40})
    return bytes(ffi.buffer(head)) + bytes(ffi.buffer(export))


def a_look(**more: Any) -> list[Seen]:
    """Returns a look at a carefuld with one peer, and at a dead one."""
    info = ffi.new("struct careful_info *")
    info.counters[lib.CAREFUL_C_LOST_FRAMES] = 3
    info.counters[lib.CAREFUL_C_DROP_CRC] = 2
    one = ffi.new("struct careful_peer_info *", {"state": lib.CAREFUL_PEER_UP, "lost_there": 7})
    one.address.ss_family = socket.AF_INET
    one.name = b'a "name"\n'
    found = replace(
        IN_EFFECT,
        counters=counters(info),
        xdp_counters={"admitted": 5, "drop_seq": 1},
        exports=[Export('/srv/a "b"\\\n')],
        peers=[replace(peer(one, info, Config()), **more)],
    )
    return [Seen("eth1", found, parse(an_answer()), {0: (4, 0.5)}), Seen("eth2")]


def read(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Returns sample -> labels -> value, by Prometheus' own parser."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        for sample in family.samples:
            series = found.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in series, f"{sample.name} {sample.labels} twice"
            series[labels] = sample.value
    return found


def value(found: Mapping[str, Any], name: str, /, **labels: str) -> float:
    (one,) = (value for given, value in found[name].items() if frozenset(labels.items()) <= given)
    return float(one)


def test_metrics_text__has_the_counts() -> None:
    found = read(metrics_text(a_look))
    assert value(found, "careful_up", carefuld="eth1") == 1
    assert value(found, "careful_up", carefuld="eth2") == 0
    assert value(found, "careful_lost_frames_total", carefuld="eth1") == 3
    assert value(found, "careful_peer_lost_frames_total", found="there") == 7
    assert value(found, "careful_dropped_frames_total", reason="crc") == 2
    assert value(found, "careful_xdp_frames_total", verdict="drop_seq") == 1
    assert value(found, "careful_program_attached") == 1
    assert value(found, "careful_peer_state", state="up") == 1
    assert value(found, "careful_peer_state", state="stalled") == 0
    assert value(found, "careful_export_written_bytes_total", export='/srv/a "b"\\\n') == 1 << 40
    assert value(found, "careful_peer_message_duration_seconds_sum") == 0.5


def test_look__a_carefuld_with_too_many_clients_is_not_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a carefuld turns the exporter away, and was once reported as dead."""

    def refuse(instance: Instance, _: Config, __: float) -> None:
        number = errno.EUSERS if instance.name == "full" else errno.ETIMEDOUT
        raise CarefulError(number, "no answer", "carefuld")

    running = [Instance(name, pid=1, here=True) for name in ("full", "mute")]
    monkeypatch.setattr(instances, "running", lambda: running)
    monkeypatch.setattr(instances, "died", dict)
    monkeypatch.setattr(status, "gather_queue", refuse)
    found = read(metrics_text(lambda: exporter.look(None, None, Config())))
    assert value(found, "careful_up", carefuld="full") == 1
    assert value(found, "careful_full", carefuld="full") == 1
    assert value(found, "careful_up", carefuld="mute") == 0
    assert value(found, "careful_full", carefuld="mute") == 0
    assert "careful_lost_frames_total" not in found


def test_look__waits_only_once_for_several_mute_carefulds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Carefulds were once asked one by one, 10 s each, until Prometheus gave up."""
    names = ("a", "b", "c", "d")
    at_once = threading.Barrier(len(names))

    def wait(_: Instance, __: Config, timeout_s: float) -> None:
        assert timeout_s < 5
        at_once.wait(60)
        raise CarefulError(errno.ETIMEDOUT, "no answer", "carefuld")

    running = [Instance(name, pid=1, here=True) for name in names]
    monkeypatch.setattr(instances, "running", lambda: running)
    monkeypatch.setattr(instances, "died", dict)
    monkeypatch.setattr(status, "gather_queue", wait)
    assert exporter.look(None, None, Config()) == [Seen(name) for name in names]


def test_look__another_queue_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that did not answer once had two samples, too; Prometheus accepts one."""

    def mute(*_: object) -> None:
        raise CarefulError(errno.ETIMEDOUT, "no answer", "carefuld")

    monkeypatch.setattr(instances, "running", lambda: [Instance("eth1", pid=1, here=True)])
    monkeypatch.setattr(instances, "died", lambda: {"eth1": "died", "eth2": "died"})
    monkeypatch.setattr(status, "gather_queue", mute)
    assert exporter.look(None, None, Config()) == [Seen("eth1"), Seen("eth2")]


def test_look__a_carefuld_that_refuses_us_is_not_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CarefulError(errno.EACCES, "only root may connect", "carefuld")

    monkeypatch.setattr(instances, "running", lambda: [Instance("eth1", pid=1, here=True)])
    monkeypatch.setattr(status, "gather_queue", refuse)
    with pytest.raises(PermissionError, match="only root"):
        exporter.look(None, None, Config())


def test_metrics_text__histogram_is_cumulative_and_in_seconds() -> None:
    found = read(metrics_text(a_look))
    name = "careful_operation_duration_seconds"
    assert value(found, f"{name}_bucket", operation="get", le="1.024e-06") == 1
    assert value(found, f"{name}_bucket", operation="get", le="4.096e-06") == 1
    assert value(found, f"{name}_bucket", operation="get", le="8.192e-06") == 2
    assert value(found, f"{name}_bucket", operation="get", le="+Inf") == 3
    assert value(found, f"{name}_count", operation="get") == 3
    assert value(found, f"{name}_sum", operation="get") == 10
    assert value(found, "careful_failed_operations_total", operation="get") == 4
    assert value(found, f"{name}_count", operation="store") == 0


def test_metrics_text__a_peers_own_name_is_no_label() -> None:
    assert "name" not in metrics_text(lambda: a_look()).split("careful_peer_state", 1)[1]
    assert 'peer="h7"' in metrics_text(lambda: a_look(node="h7"))


def test_metrics_text__a_peer_in_another_slot_has_another_series() -> None:
    """Counts of another peer in the new slot would look like a burst."""
    name = "careful_peer_message_duration_seconds_count"
    for slot in (0, 3):
        (seen, _) = a_look(slot=slot)
        found = read(
            metrics_text(lambda seen=seen, slot=slot: [replace(seen, messages={slot: (9, 1.0)})])
        )
        assert value(found, name, slot=str(slot)) == 9


def test_metrics_text__an_export_whose_name_is_no_utf8() -> None:
    """Its error was once the only output, for all carefulds."""
    (seen, other) = a_look()
    assert seen.found is not None
    odd = replace(seen.found, exports=[Export(os.fsdecode(b"/srv/\xff"))])
    found = read(metrics_text(lambda: [replace(seen, found=odd), other]))
    assert value(found, "careful_export_requests_total", export="/srv/\\xff") == 9
    assert value(found, "careful_up", carefuld="eth2") == 0


def test_metrics_text__nothing_is_up() -> None:
    text = metrics_text(lambda: [])
    assert set(read(text)) == {"careful_build_info"}
    minor = versions()["wire_minor"]  # 6.0 and 6.1 once looked the same
    assert f'wire_minor="{minor}"' in text


@pytest.fixture
def promtool(monkeypatch: pytest.MonkeyPatch) -> str | Path:
    """Returns this host's promtool, or Debian's in a step of tools/test with network."""
    if found := shutil.which("promtool"):
        return found
    if "CAREFUL_MACHINES" not in os.environ:
        pytest.skip("promtool (Debian's prometheus) is not installed")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "machines"))
    archive = importlib.import_module("emulated.archive")
    try:
        return Path(
            archive.unpacked("promtool", "bookworm", "amd64", ["prometheus"]), "usr/bin/promtool"
        )
    except archive.LabError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(1800)  # a package of 19 MB may be downloading
def test_metrics_text__promtool_finds_nothing_to_say(promtool: str | Path) -> None:
    command = [promtool, "check", "metrics"]
    text = metrics_text(a_look)
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    rules = PACKAGING / "careful.rules.yml"
    done = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Alert(NamedTuple):
    """Series with a value per minute, and the minutes with and without the alert."""

    series: dict[str, list[int]]
    stands: tuple[int, ...]
    silent: tuple[int, ...]


ALERTS = {
    "CarefulDown": Alert({"careful_up": [1, 0, 0, 0, 1]}, (2, 3), (0, 1, 4)),
    "CarefulFull": Alert({"careful_full": [0] + [1] * 8 + [0]}, (6, 8), (5, 9)),
    "CarefulProgramDetached": Alert({"careful_program_attached": [1, 0, 1]}, (1,), (0, 2)),
    "CarefulFramesLost": Alert(
        {"careful_lost_frames_total": [2, 2, 2] + [5] * 8}, (3, 6), (0, 2, 9)
    ),
    "CarefulPeerStalled": Alert(
        {
            'careful_peer_state{state="stalled"}': [0, 1, 1, 1, 0],
            'careful_peer_state{state="up"}': [1, 0, 0, 0, 1],
        },
        (2, 3),
        (0, 1, 4),
    ),
    "CarefulControlUnheard": Alert(
        {"careful_peer_control_unheard": [0, 1, 1, 1, 0]}, (2, 3), (1, 4)
    ),
    "CarefulSlowClient": Alert({"careful_peer_withholding": [0] + [1] * 8 + [0]}, (6, 8), (5, 9)),
    # A denied request fails too; from the 12th minute on only denied ones fail.
    "CarefulExportFails": Alert(
        {
            "careful_export_failed_requests_total": [120 * k for k in range(24)],
            "careful_export_denied_requests_total": [0] * 12 + [120 * k for k in range(12)],
        },
        (8, 11),
        (1, 4, 18, 23),
    ),
    "CarefulDenied": Alert(
        {"careful_export_denied_requests_total": [120 * max(k - 3, 0) for k in range(16)]},
        (11, 15),
        (0, 3, 9),
    ),
}


@pytest.mark.timeout(1800)
def test_rules__promtool_fires_each_alert_in_time(promtool: str | Path, tmp_path: Path) -> None:
    """`promtool test rules` sees each alert, no longer than expected."""
    rules = PACKAGING / "careful.rules.yml"
    assert set(re.findall(r"- alert: (\w+)", rules.read_text())) == set(ALERTS)
    tests = []
    for name, alert in ALERTS.items():
        query = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)'
        minutes = dict.fromkeys(alert.stands, 1) | dict.fromkeys(alert.silent, 0)
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {"series": series, "values": " ".join(map(str, values))}
                    for series, values in alert.series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": "{}", "value": value}],
                    }
                    for minute, value in sorted(minutes.items())
                ],
            }
        )
    path = tmp_path / "tests.yml"  # JSON is YAML
    whole = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    path.write_text(json.dumps(whole))
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> list[str]:
    """Returns the expressions of the dashboard's panels."""
    dashboard = json.loads((PACKAGING / "grafana.json").read_text())
    return [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]


@pytest.mark.timeout(1800)
def test_dashboard__promtool_reads_each_expression(promtool: str | Path, tmp_path: Path) -> None:
    """With Grafana's values for its variables."""
    rules = [
        {"record": f"shown:{k}", "expr": re.sub(r"\$\w+", ".*", re.sub(r"\$__\w+", "5m", expr))}
        for k, expr in enumerate(expressions())
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def named(expression: str) -> set[str]:
    return set(re.findall(r"\bcareful_\w+", expression))


def test_rules_and_dashboard__use_existing_metrics() -> None:
    present = set(read(metrics_text(a_look)))
    rules = re.findall(r"^ +expr: (.*)$", (PACKAGING / "careful.rules.yml").read_text(), re.M)
    dashboard = json.loads((PACKAGING / "grafana.json").read_text())
    shown = expressions()
    assert len(rules) >= 8
    assert len(shown) >= 15
    for expression in [*rules, *shown]:
        assert named(expression), expression
        assert named(expression) <= present, expression
    targets = [one for panel in dashboard["panels"] for one in panel["targets"]]
    assert all("{{instance}} " in one["legendFormat"] for one in targets)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def test_serve__answers_until_it_ends_and_names_a_port_that_is_taken() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = threading.Event()
    args = (a_look, "127.0.0.1", port, began.set)
    threading.Thread(target=serve, args=args, daemon=True).start()
    assert began.wait(30)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        assert value(read(answer.read().decode()), "careful_lost_frames_total") == 3
    began.clear()
    with pytest.raises(CarefulError, match=rf"--listen 127.0.0.1:{port}"):
        serve(*args)
    assert not began.is_set()
    # Connections without a whole request do not delay others.
    with ExitStack() as idle:
        for _ in range(60):
            one = idle.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            one.send(b"GET /metrics HTTP/1.1\r\nX: ")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert value(read(answer.read().decode()), "careful_lost_frames_total") == 3


def test_exporter__of_real_hosts(shared_pair: tuple[Host, Host]) -> None:
    a, b = shared_pair
    make_file(b.export / "f", 1 << 20)
    a.ctl("get", "h2:f", a.own)
    a.ctl("put", a.own / "f", "h2:null:")
    local = read(a.ctl("exporter", "eth1", "--once").stdout)
    remote = read(b.ctl("exporter", "eth1", "--once").stdout)
    assert value(local, "careful_peer_state", address="10.77.0.2", state="up") == 1
    assert value(local, "careful_operation_duration_seconds_count", operation="get") >= 1
    assert value(remote, "careful_export_read_bytes_total", export=str(b.export)) >= 1 << 20
    assert value(remote, "careful_export_requests_total") >= 2
    assert value(local, "careful_lost_frames_total") == 0
    assert re.search(r'"f": 1048576 bytes read in [0-9.]+ s, done$', b.log, re.MULTILINE)
    wait_for(lambda: "1048576 bytes written in" in b.log, "word of what went nowhere")
    assert re.search(r"1048576 bytes written in [0-9.]+ s, done$", b.log, re.MULTILINE)
    assert value(local, "careful_xdp_frames_total", verdict="admitted") > 0

"""No line of a command's output is wider than a terminal of 80 columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from careful.cli import common
from careful.errors import WithheldError
from careful.fleet.matrix import Cell
from careful.measure.inside.packet_flow import Burst, Transfer
from careful.measure.inside.stages import Fit, Samples
from careful.measure.path import answer
from careful.measure.statistics.estimate import Estimate
from careful.model import load_shipped
from careful.model.files import parse_source, shipped_names
from careful.model.simulation import Message
from careful.model.simulation import simulate as run_rules
from careful.plan import Plan
from careful.render.instance import status as status_report
from careful.render.instance.fleet_matrix import matrix_text
from careful.render.measuring import bench, measure, pathchar_stages
from careful.render.measuring.bench import bench_text
from careful.render.measuring.logp import logp_text
from careful.render.tables import cells, folded
from careful.render.tracing import trace as trace_report
from careful.render.tuning import plan, simulate
from careful.render.tuning import tune as tune_report
from careful.render.tuning.plan import plan_text
from careful.render.tuning.simulate import simulation_figures, simulation_text
from fake_exchange import CROSSING, FakeExchange
from fake_hosts import FakeHosts
from fake_path import FakePath
from in_effect import IN_EFFECT, PEER
from logp_machine import Machine
from logp_machine import measure as measure_logp

REPORTS = Path(__file__).parents[2] / "reports"
HOST = "storage-7.rack-12.example.org"


def pathchar() -> str:
    path = FakePath().measure()
    lines = measure.answer(answer.of_path(path, None))
    return "\n".join([*lines, measure.pathchar_table(path, HOST)])


def stages() -> str:
    hosts = FakeHosts(jitter_us=90.0)
    ends = hosts.measure(seconds=1.0)
    lines = measure.answer(answer.of_path(hosts.path(), ends))
    return "\n".join([*lines, pathchar_stages.stages_table(ends, HOST)])


def blackbox() -> str:
    parts = []
    for found in (
        FakeExchange(CROSSING).measure(sizes_count=24),
        FakeExchange(((50.0, 0.0), (80.0, 0.0)), jitter_us=200).measure(rounds_max=4),
    ):
        parts += [*measure.answer(answer.of_blackbox(found)), measure.blackbox_table(found, HOST)]
    return "\n".join(parts)


def signature() -> str:
    found = measure_logp(Machine(os=1.5, or_=1.2, g=8.0, L=6.0), seconds=2.0)
    lost = replace(found.g, estimate=None, reason="other work came between in most bursts of 248")
    return logp_text(found, HOST) + "\n" + logp_text(replace(found, g=lost), HOST)


def clearbox() -> str:
    sizes = np.full(9, 3694.0)
    samples = Samples(sizes, np.arange(9.0), np.ones(9, np.int64), frozenset())
    wide = Estimate(12345.6, 1.5)
    fits = [
        Fit("netTx, netRx", "careful-lab-h1", samples, None, wide, wide, 32, reason)
        for reason in ("", "only 1 size with 5 samples or more; a slope needs 4")
    ]
    fits = [replace(one, resource="careful-lab-h1's engine's thread") for one in fits]
    return trace_report.stages_table(f"careful to {HOST}, measured from inside", fits)


def frames() -> str:
    sent = Transfer("netTx", HOST, 0.0, 123456.0, 123456789, 1000, tuple(range(12)))
    burst = Burst([sent], [("netTx", HOST)], 1, 0)
    return trace_report.frames_table(burst, type("Heard", (), {"lost_count": 12})())


def plans() -> str:
    made = []
    for name in shipped_names():
        request = plan.Request(name, load_shipped(name), 1 << 20, "best", None, 1, None, 0)
        made += [plan_text(request), plan.classes(request.source, name, 64, 3750, 0)[-1]]
    box = {"kind": "blackbox", "sum_g_us": 900.0, "sum_G_us_per_KiB": 90.0}
    box |= {"g_b_us": 700.0, "G_b_us_per_KiB": 40.0, "sum_G_others_us_per_KiB": 50.0}
    source = parse_source(json.dumps(box))
    made.append(plan_text(plan.Request("box", source, 1 << 16, "best", None, 1, 3702, 0)))
    made.append(plan.classes(source, "box.json", 64, 3750, 0)[-1])
    error = WithheldError("", "Σg of all stages, ΣG of the other stages", "it is wide", 3702)
    made.append(plan.withheld(error, "/srv/measured/h2.json")[-1])
    return folded("\n".join(made))


def simulated() -> str:
    made = load_shipped("network-disk-network")
    request = simulate.Request("x", made, 65536, 3, 0.0, "plan", "best", None, (), False)
    outcome = run_rules(made, [Message(65536)], request.rules())
    return folded(simulation_text(request, simulation_figures(request, outcome)))


def benches() -> str:
    kept = json.loads((REPORTS / "bench.json").read_text())
    return bench_text(bench.read(kept), kept["inputs"])


def matrix() -> str:
    names = [f"h{number}.rack-12" for number in range(12)]
    found = {pair: Cell(1e4 + k, 0.1 * k, k, 10) for k, pair in enumerate(permutations(names, 2))}
    return matrix_text(found)


def tuning() -> str:
    pulses = {"net_tx": 65536, "store": 65536, "host_tx": 0, "host_rx": 0}
    plans = (Plan.fixed(3694), Plan(64, 70000, 12, 3694, 60000, 3), None)
    kind = type("Setting", (), {})
    rows = []
    for one in plans:
        setting = kind()
        setting.plan, setting.minpulse_bytes = one, pulses
        rows.append(setting)
    return tune_report.tuning([("new peers", rows), (HOST, rows)])


def status() -> str:
    peers = [PEER, replace(PEER, node=HOST, address="fd77::1234:5678:9abc:def0", state="stalled")]
    found = replace(IN_EFFECT, peers=peers)
    return "\n".join(
        (
            status_report.statuses([found], {}),
            status_report.up(found, False),
        )
    )


RENDERED: list[Callable[[], str]] = [
    *(pathchar, stages, blackbox, signature, clearbox, frames, plans, simulated),
    *(benches, matrix, tuning, status),
]


@pytest.mark.parametrize("render", RENDERED, ids=lambda render: render.__name__)
def test_output__fits_80_columns(
    render: Callable[[], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    common.say_folded(render())
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert [line for line in lines if cells(line) > 80] == []

"""The page of speed has the tables of the kept run, and of no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tool_module import load_tool

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("bench summary", monkeypatch)


def test_page__has_the_kept_run_s_tables(tool: ModuleType) -> None:
    """A run of an older tools/bench/run has none of them."""
    has = tool.HEADING in tool.PAGE.read_text()
    assert has == ("commit" in json.loads(tool.KEPT.read_text()))
    if has:
        argv = [sys.executable, ROOT / "tools/bench/run", "summary", "--check"]
        done = subprocess.run(argv, check=False)
        assert done.returncode == 0, "tools/bench/run summary --page writes it"


def test_page__tables(tool: ModuleType) -> None:
    rounds: dict[str, list[float | None]] = {
        "trip_careful_64_p50_us": [3.0, None, 5.0],
        "small_mps": [2e6, 1e6, 3e6],
        "cpu_get_client_s": [1.0, 1.5, 2.0],
        "cpu_get_server_s": [0.5, 0.5, 0.5],
        "cpu_iperf_client_s": [0.4],
        "cpu_iperf_server_s": [0.3],
        "fio_us": [58.0, 60.0, 62.0],
        "fio_p99_us": [78.0, 80.0, 82.0],
        "fetch_us": [10.0],
        "tree_careful_s": [0.3, 0.4, 0.5],
        "tree_rsync_s": [0.6],
    }
    ratio = {"figure": "request_us", "yardstick": "bare_echo_us", "ratio": 1.2, "ratio_min": 1.1}
    ratio |= {"ratio_max": 1.3, "bound": 1.1, "at_most": True, "met": False}
    whole = {"commit": "c0ffee", "kernel": "6.18.1-x", "file_bytes": 1 << 30, "rounds": rounds}
    whole["memory"] = {"h1_VmHWM_KiB": 16384.0, "h2_VmHWM_KiB": 8192.0, "h1_RssAnon_KiB": 1.0}
    whole |= {"xdp": "auto", "xdp_modes": {"bare": ["generic"], "carefuld": ["generic"]}}
    text = tool.page(whole | {"ratios": [ratio]}, "# speed\n")
    for line in (
        "| careful | 4.0 | - | - | - |",
        "| careful, 64 B messages in a stream | 2.00 million/s | 1.00 | 3.00 |",
        "| carefulctl get | 1.50 | 0.50 |",
        "| TCP stream without GSO and GRO (iperf3) | 0.40 | 0.30 |",
        "| NBD read, 8 KiB (nbdkit memory, fio) | 60.0 | 80.0 |",
        "| careful block fetch, 8 KiB | 10.0 | - |",
        "| carefulctl get -r | 0.40 | 0.30 | 0.50 |",
        "| resident, the most so far | 16.0 | 8.0 |",
    ):
        assert line in text.splitlines()
    assert "| request, 64 B / AF_XDP | 1.20 (1.10 to 1.30): no | - | ≤ 1.10 |" in text
    assert "At commit c0ffee, kernel 6.18" in text
    assert "ran in generic XDP mode (`--xdp auto`)" in " ".join(text.split())
    assert tool.page(whole | {"ratios": [ratio]}, text) == text


def test_page__of_both_xdp_modes(tool: ModuleType, tmp_path: Path) -> None:
    """Ratios of both, and the device's own; what has no mode stands once."""
    ratio = {"figure": "request_us", "yardstick": "tcp_spin_us", "bound": 0.45, "at_most": True}
    tree = {"figure": "tree_careful_s", "yardstick": "tree_rsync_s", "bound": 0.5, "at_most": True}
    spans = {"ratio_min": 0.3, "ratio_max": 0.6}
    modes = [
        {
            "xdp": name,
            "rounds": {"bare_echo_us": [device], "tcp_spin_us": [10.0], "request_us": [own * 10]},
            "ratios": [
                ratio | spans | {"ratio": own, "met": own <= 0.45},
                tree | spans | {"ratio": 0.6, "met": False},
            ],
        }
        for name, device, own in (("native", 4.7, 0.5), ("generic", 3.5, 0.4))
    ]
    path = tmp_path / "kept.json"
    whole = {"commit": "c0ffee", "kernel": "6.18.1-x", "file_bytes": 1 << 30, "modes": modes}
    path.write_text(json.dumps(whole))
    text = tool.section(tool.load(path))
    assert "| careful / beside | native | generic | device | target |" in text
    line = "| 0.50 (0.30 to 0.60): no | 0.40 (0.30 to 0.60): met | 0.47, 0.35 | ≤ 0.45 |"
    assert f"| request, 64 B / TCP {line}" in text
    assert "| get -r, 10,000 / rsync | 0.60 (0.30 to 0.60): no | - | - | ≤ 0.50 |" in text
    said = " ".join(text.split())
    assert "small files in the one that carefuld chose; the other tables are of native mode" in said


def test_page__names_programs_in_another_xdp_mode(tool: ModuleType) -> None:
    modes = {"bare": ["native"], "carefuld": ["native", "generic"]}
    said = tool._modes({"xdp": "auto", "xdp_modes": modes})
    assert said == " XDP modes: bare native, carefuld native and generic (`--xdp auto`)."
    assert tool._modes({"xdp": "auto"}) == ""


def test_page__the_device_is_not_beside_our_own(tool: ModuleType) -> None:
    names = ("bare_stream_gbit", "nbdcopy_gbit", "get_plain_gbit")
    whole = {"rounds": dict(zip(names, ([16.0], [8.0], [12.0]), strict=True))}
    said = [tool._device(whole, tool.Bound("get_gbit", name, None, False)) for name in names]
    assert said == ["-", "2.00", "-"]


def test_plot__of_a_run_of_some_parts(tool: ModuleType, tmp_path: Path) -> None:
    """Each panel that careful is in; the others' places stay empty."""
    pytest.importorskip("matplotlib")
    rounds = {"get_gbit": [10.0, 12.0], "nbdcopy_gbit": [8.0], "tcp_spin_us": [7.0]}
    found = tool.panels({"file_bytes": 1 << 30, "rounds": rounds})
    assert [panel.title for panel in found] == ["file of 1 GiB"]
    assert "| nbdcopy: 8 Gbit/s | 1.38 |" in tool.table(found)
    tool.draw(found, str(tmp_path / "speed.png"))
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")

"""tools/bench/run profile: what a sample belongs to, by its stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tool_module import load_tool

#: As `perf script -F comm,cpu,ip,sym,dso` prints them: the innermost function comes first.
TEXT = """\
carefuld [001]
\tffffffff81e1 memcpy_orig ([kernel.kallsyms])
\tffffffff81a2 xsk_build_skb+0x1f4 ([kernel.kallsyms])
\tffffffff81a3 xsk_generic_xmit ([kernel.kallsyms])
\tffffffff81a4 __x64_sys_sendto ([kernel.kallsyms])
\t    7f1100aa __libc_sendto (/usr/lib/libc.so.6)

carefuld [001]
\tffffffffc001 bpf_prog_1234_careful_xdp (bpf_prog_1234_careful_xdp)
\tffffffff81b1 veth_poll ([kernel.kallsyms])
\tffffffff81b2 net_rx_action ([kernel.kallsyms])
\tffffffff81a3 xsk_generic_xmit ([kernel.kallsyms])

carefuld [000]
\t    55aa1111 xxh3_accumulate (/usr/sbin/carefuld)

carefulctl [000]
\t    55aa2222 _PyEval_EvalFrameDefault (/usr/bin/python3.11)

carefulctl [000]
\tffffffff81c1 d_alloc ([kernel.kallsyms])
\tffffffff81c2 __x64_sys_openat2 ([kernel.kallsyms])

swapper [000]
\tffffffff81d1 pv_native_safe_halt ([kernel.kallsyms])
"""


def test_samples__are_told_by_their_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = load_tool("bench profile", monkeypatch)
    assert dict(profile.samples(TEXT)) == {
        (1, "carefuld", "send"): 1,
        (1, "carefuld", "receive"): 1,
        (0, "carefuld", "digest"): 1,
        (0, "carefulctl", "own _PyEval_EvalFrameDefault"): 1,
        (0, "carefulctl", "files made"): 1,
    }


def test_report__of_the_kept_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tables, those of round trips and of a stream's functions among them."""
    profile = load_tool("bench profile", monkeypatch)
    kept = Path(__file__).parents[1] / "reports" / "profile.json"
    assert profile.report(json.loads(kept.read_text()))
    said = capsys.readouterr().out
    for kind in ("native     64 request", "generic  8192 block-warm", " %  link_send", "get -r: "):
        assert kind in said

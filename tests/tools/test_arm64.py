"""Tests the summary that `arm64` makes of ctest's output, without a compiler and a machine."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from tool_module import load_tool

TOLD = """<testsuite>
<testcase name="a" time="1.26" status="run"><system-out>not tried: b</system-out></testcase>
<testcase name="c" time="0" status="fail"><system-out>
bpf(), which loads the XDP program, is denied (Function not implemented): x</system-out></testcase>
<testcase name="d" time="0" status="fail"><system-out>d.c:1: x: not true: y</system-out></testcase>
<testcase name="e" time="0" status="notrun"><system-out>SKIP: no z</system-out></testcase>
</testsuite>"""


@pytest.fixture
def arm64(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("tests/machines/arm64", monkeypatch)


@pytest.mark.parametrize("machine", [False, True])
def test_judged__user_mode_lacks_calls_and_a_machine_does_not(
    arm64: ModuleType, tmp_path: Path, machine: bool
) -> None:
    (tmp_path / "told").write_text(TOLD)
    found = arm64.results(tmp_path / "told", machine)
    by = "machine" if machine else "user mode"
    assert found.pop("a") == {"status": "passed", "seconds": 1.3, "by": by, "not_tried": "b"}
    bpf = {"status": "failed"} if machine else {"status": "skipped", "why": "QEMU has no bpf()"}
    assert found == {
        "c": {**bpf, "seconds": 0.0, "by": by},
        "d": {"status": "failed", "seconds": 0.0, "by": by},
        "e": {"status": "skipped", "seconds": 0.0, "by": by, "why": "no z"},
    }

"""BPF's stamps of frames are converted to our clock, in a time namespace too."""

from __future__ import annotations

from pathlib import Path

import pytest
from careful.control.tracing import capture


@pytest.mark.parametrize(
    ("text", "ahead_ns"),
    [
        ("monotonic      86400         5\nboottime           0         0\n", 86_400 * 10**9 + 5),
        ("", 0),
    ],
)
def test_clock__in_a_time_namespace(
    text: str, ahead_ns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = tmp_path / "offsets"
    offsets.write_text(text)
    monkeypatch.setattr(capture, "_TIME_NAMESPACE", offsets)
    assert capture._clock_ahead_ns() == ahead_ns
    offsets.unlink()
    assert capture._clock_ahead_ns() == 0

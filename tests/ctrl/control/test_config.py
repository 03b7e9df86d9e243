"""The configuration file's `tune`: who tunes an instance that is brought up."""

from __future__ import annotations

from pathlib import Path

import pytest
from careful.control import config
from careful.errors import CarefulError

FILE = Path("careful.toml")


def test_tune__of_all_and_of_one() -> None:
    found = config.parse('[up]\ntune = "auto"\n[instance.eth2]\ntune = "off"\ncpu = 1', FILE)
    assert found.tune("eth1") == "auto"
    assert found.tune("eth2") == "off"
    assert found.options("eth2").cpu == 1
    assert config.Config().tune("eth1") == "off"


def test_tune__a_later_file_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("etc.toml", "home.toml")]
    files[0].write_text('[up]\ntune = "auto"\n[instance.eth2]\ntune = "auto"')
    files[1].write_text('[instance.eth2]\ntune = "off"')
    monkeypatch.delenv("CAREFUL_CONFIG", raising=False)
    monkeypatch.setattr(config, "DEFAULT_PATHS", tuple(files))
    found = config.load()
    assert [found.tune(name) for name in ("eth1", "eth2")] == ["auto", "off"]


@pytest.mark.parametrize("value", ['"on"', "true", "1", '["auto"]', '""'])
@pytest.mark.parametrize("table", ["up", "instance.eth1"])
def test_tune__that_cannot_be_meant(table: str, value: str) -> None:
    with pytest.raises(CarefulError, match=r"tune = .*: one of auto, off"):
        config.parse(f"[{table}]\ntune = {value}", FILE)

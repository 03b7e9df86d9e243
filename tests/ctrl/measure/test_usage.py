"""`carefulctl measure` and `trace`: numbers that are none are usage errors."""

from __future__ import annotations

import math

import pytest
from careful.cli.main import run
from careful.measure.estimators import blackbox, clearbox, logp, pathchar


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "0", "-1", "soon", "1e300"])
@pytest.mark.parametrize(
    "argv",
    [
        ["measure", "pathchar", "h2", "--time"],
        ["measure", "pathchar", "h2", "--timeout"],
        ["measure", "pathchar", "h2", "--precision"],
        ["measure", "blackbox", "h2", "--time"],
        ["measure", "blackbox", "h2", "--precision"],
        ["measure", "clearbox", "h2", "--time"],
        ["measure", "logp", "h2", "--time"],
        ["measure", "logp", "h2", "--precision"],
        ["measure", "logp", "h2", "--gap-for"],
        ["trace", "stages", "--time"],
        ["trace", "frames", "--gap"],
        ["trace", "frames", "--most"],
    ],
    ids=lambda argv: "-".join(argv[1:]),
)
def test_usage__no_number_is_refused_with_status_2(
    argv: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*argv, word]) == 2
    said = capsys.readouterr().err
    assert f"Invalid value for '{argv[-1]}'" in said
    assert word in said


@pytest.mark.parametrize("options", [one.Options for one in (blackbox, clearbox, logp, pathchar)])
@pytest.mark.parametrize("field", ["seconds", "precision"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_options__no_number_is_refused(options: type, field: str, value: float) -> None:
    with pytest.raises(ValueError, match="precision must be between"):
        options(**{field: value})

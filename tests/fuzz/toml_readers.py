"""Checks the readers of TOML with any bytes: configuration, pipelines, and measurements (JSON).

A reader must accept a text, or refuse it with one line that names the file. Inputs are kept texts
and their mutations; fuzz_toml.py looks for more.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from careful.control.options import config
from careful.errors import CarefulError
from careful.model import Pipeline, files, load_shipped, shipped_names
from careful.model.blackbox import BlackBox
from careful.model.files import parse_source

CORPUS = Path(__file__).parent / "corpus" / "toml"

#: Replacements for values.
ODD = (
    *("0", "-1", "1e308", "1e999", "nan", "-inf", "0x7fffffffffffffff", "1_0", "9" * 5000),
    *('""', "'''\n'''", '"\\u0000"', '"\\ud800"', '"\\U0010ffff"', "true", "[]", "{}", "[[]]"),
    *("1979-05-27", "07:32:00", "2024-13-01T00:00:00Z", "0000-00-00", "[" * 3000, "{a=" * 500),
    *("a.b.c = 1", "[nodes]", "[[stage]]", "[up]", "[instance.x]", "[instance]", "stage = 3"),
    *("\x00", "\r", "\ufeff", "\u2028", "#", "=", "\n\n", '"', "'", "\\", "é", "name = 1"),
    *('g_us = "x"', "peers = 1.5", 'xdp = "none"', "export = [1]", "G_us_per_KiB = true"),
    *('{"kind": "blackbox"}', '{"stages": [{}]}', '{"stages": [1]}', "[1]", "null", "{}"),
    *("window = 1", "delay_us = -1", "group = []", "resource = 1", "link = 3", "1.2.3", "0"),
)


def check(data: bytes) -> None:
    """Passes data to each reader. Raises AssertionError unless a reader accepts or refuses it."""
    text = data.decode(errors="replace")
    try:
        whole = config.parse(text, Path("careful.toml"))
    except CarefulError as error:
        message = str(error)
        assert re.match(r"careful\.toml(:\d+)?: ", message), message
        assert "\n" not in message, message
    else:
        assert all(isinstance(address, str) for address in whole.nodes.values())
        for options in (whole.up, *whole.instances.values()):
            assert options.peers is None or type(options.peers) is int
            assert options.export is None or all(type(one) is str for one in options.export)
    try:
        source = parse_source(text, "pipeline.toml")
    except ValueError as error:
        message = str(error)
        assert message.startswith("pipeline.toml: "), message
        assert "\n" not in message, message
    else:
        assert isinstance(source, Pipeline | BlackBox)


def kept() -> list[bytes]:
    """Returns the kept inputs, and the pipelines of the package."""
    assert all(load_shipped(name).stages for name in shipped_names())
    folder = Path(files.__file__).parent / "pipelines"
    return [path.read_bytes() for path in (*sorted(CORPUS.iterdir()), *sorted(folder.iterdir()))]


def mutate(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Changes bytes, lines or values once."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(7)
    if kind == 0 and data:
        place = rng.randrange(len(data))
        return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
    if kind == 1 and data:
        start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        return data[:start] + data[end:]
    if kind == 2:
        lines.insert(at, rng.choice(lines))
    elif kind == 3:
        lines[at] = rng.choice(ODD).encode(errors="replace")
    elif kind == 4:
        key, _, _ = lines[at].partition(b"=")
        lines[at] = key + b"= " + rng.choice(ODD).encode(errors="replace")
    elif kind == 5:
        other = rng.choice(others).split(b"\n")
        lines[at:at] = other[rng.randrange(len(other)) :][:5]
    else:
        place = rng.randrange(len(data) + 1)
        return data[:place] + rng.choice(ODD).encode(errors="replace") + data[place:]
    return b"\n".join(lines)


def inputs(seed: int, seeds: list[bytes]):
    """Yields mutations of the kept inputs without end."""
    rng = random.Random(seed)
    while True:
        data = rng.choice(seeds)
        for _ in range(rng.randrange(1, 8)):
            data = mutate(data, seeds, rng)
        yield data

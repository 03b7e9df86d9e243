"""Measures a program that uses memory: memory_work.py WORK WHERE [WORD...].

WHERE is h2 (careful), own:h2 (over a queue of its own), an NBD URI, or "local". Prints a JSON
object. scenarios/engine/memory.py runs it.
"""

from __future__ import annotations

import ctypes
import json
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PAGE, KEYS, NODE = 4096, 1 << 20, 256
READ_ONLY = 4  # of sqlite3_deserialize()
LIBRARY = Path(__file__).parents[2] / "build/gcc/libnbd_pages.so"
clock = time.perf_counter


def took(call: Callable[..., object], *args: object) -> float:
    began = clock()
    call(*args)
    return clock() - began


def opened(where: str, name: str) -> Any:
    """Returns a piece of a host; "own:HOST": over a queue of this program."""
    import careful.memory

    way, _, host = where.rpartition(":")
    return careful.memory.connect(host, ifname="eth1" if way else None).open(Path(name).name)


def library() -> ctypes.CDLL:
    found = ctypes.CDLL(str(LIBRARY))
    found.nbd_pages_map.restype = ctypes.c_void_p
    found.nbd_pages_map.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64)
    found.nbd_pages_burst.restype = ctypes.c_double
    return found


def mapped(where: str, name: str, nbytes: int, local: int) -> Any:
    """Returns memory whose pages come when they are touched; "local": all of it is here."""
    if where == "local":
        return np.fromfile(name, np.uint8)
    if "://" not in where:
        memory = opened(where, name).map(writable=False, local_bytes=local)
        return np.frombuffer(memory, np.uint8)
    uri = "" if where == "://" else where
    base = library().nbd_pages_map(uri.encode(), nbytes, local)
    if not base:
        raise SystemExit(f"{where}: cannot be mapped")
    return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(base)), np.uint8)


def quantiles(times: list[float], name: str) -> dict[str, float]:
    us, n = [1e6 * one for one in sorted(times)], len(times)
    return {f"{name}_p50_us": us[n // 2], f"{name}_p99_us": us[n * 99 // 100]}


def faults(where: str, name: str, nbytes: str) -> dict[str, float]:
    """Touches pages at random; with careful, also reads as many without a map."""
    memory = memoryview(mapped(where, name, int(nbytes), 0))
    pages = random.sample(range(0, int(nbytes), PAGE), 6000)
    found = quantiles([took(memory.__getitem__, at) for at in pages[:3000]], "fault")
    if "://" not in where:
        with opened(where, name) as piece:
            reads = [took(piece.read_into, bytearray(PAGE), at) for at in pages[3000:]]
            found |= quantiles(reads, "get")
    return found


def touch(where: str, name: str, nbytes: str) -> dict[str, float]:
    memory = memoryview(mapped(where, name, int(nbytes), 0))
    return {"touch_s": took(lambda: [memory[at] for at in range(0, int(nbytes), PAGE)])}


def vectors(where: str, name: str, nbytes: str) -> dict[str, float]:
    """Reads 64 pages at once, and one by one."""
    at = random.sample(range(0, int(nbytes), PAGE), 64)
    if "://" in where:
        offsets = (ctypes.c_uint64 * 64)(*at)
        return {"burst_s": library().nbd_pages_burst(where.encode(), offsets, 300)}
    with opened(where, name) as piece:
        parts = [(offset, bytearray(PAGE)) for offset in at]
        single_s = min(took(lambda: [piece.readv([one]) for one in parts]) for _ in range(10))
        return {"readv_s": min(took(piece.readv, parts) for _ in range(100)), "single_s": single_s}


def writes(where: str, name: str, nbytes: str) -> dict[str, float]:
    """Changes each page of a map, and writes it back."""
    with opened(where, name) as piece:
        memory = np.frombuffer(piece.map(nbytes=int(nbytes)), np.uint8)
        memory[::PAGE] = 7
        del memory
        return {"flush_s": took(piece.flush)}


def model(where: str, name: str, nbytes: str, *sizes: str) -> dict[str, float]:
    """Reads as many bytes at random pages, each size in turn; medians."""
    found: dict[str, list[float]] = {size: [] for size in sizes}
    with opened(where, name) as piece:
        for size in random.sample(sizes, 300 * len(sizes), counts=[300] * len(sizes)):
            into = bytearray(int(size))
            at = random.randrange((int(nbytes) - len(into)) // PAGE) * PAGE
            found[size].append(took(piece.read_into, into, at) * 1e6)
    return {f"{size}_us": sorted(all_us)[150] for size, all_us in found.items()}


def ranks(count: int) -> list[int]:
    """Returns keys by Zipf's law (exponent 1), of which the frequent ones lie far apart."""
    weights = 1 / np.arange(1, KEYS + 1)
    rng = np.random.default_rng(1)
    drawn = rng.choice(KEYS, count, p=weights / weights.sum())
    return [int(one) for one in rng.permutation(KEYS)[drawn]]


def tree() -> bytes:
    """Returns a B-tree of 1 M keys: nodes of a page, each 256 keys and 256 children or values."""
    keys = np.arange(KEYS, dtype=np.uint64) * 7
    leaves = np.concatenate([keys.reshape(-1, NODE), keys.reshape(-1, NODE) + 1], axis=1)
    first = leaves[:, 0].reshape(-1, NODE)
    below = 17 + np.arange(len(leaves), dtype=np.uint64).reshape(-1, NODE)
    inner = np.concatenate([first, below], axis=1)
    root = np.full((1, 2 * NODE), np.iinfo(np.uint64).max, np.uint64)
    root[0, : len(inner)], root[0, NODE : NODE + len(inner)] = inner[:, 0], range(1, 17)
    return np.concatenate([root, inner, leaves]).tobytes()


def look_up(memory: Any, keys: list[int]) -> None:
    nodes = memory.view(np.uint64).reshape(-1, 2 * NODE)
    for key in keys:
        at = 0
        for _ in range(3):
            slot = int(nodes[at, :NODE].searchsorted(7 * key, "right")) - 1
            at = int(nodes[at, NODE + slot])
        if at != 7 * key + 1:
            raise SystemExit("the tree is wrong")


def database() -> bytes:
    """Returns an SQLite database of about 32 MiB."""
    with sqlite3.connect(":memory:") as made:
        made.execute("create table t (k integer primary key, v text)")
        made.executemany("insert into t values (?, ?)", ((k, f"{k:0>200}") for k in range(150_000)))
        made.commit()
        return made.serialize()


def query(memory: Any, keys: list[int]) -> None:
    """Reads rows by key, of which some are frequent, and then all rows."""
    lib, db = ctypes.CDLL("libsqlite3.so.0"), ctypes.c_void_p()
    base, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_int64(memory.nbytes)
    some = ",".join(str(key % 150_000) for key in keys)
    if lib.sqlite3_open(b":memory:", ctypes.byref(db)) or lib.sqlite3_deserialize(
        db, b"main", base, size, size, READ_ONLY
    ):
        raise SystemExit("sqlite cannot open it")
    for text in (f"select sum(length(v)) from t where k in ({some})", "select max(v) from t"):
        if lib.sqlite3_exec(db, text.encode(), None, None, None):
            raise SystemExit("sqlite cannot read it")


#: Program -> its memory, what it does, and with how many keys.
PROGRAMS: dict[str, tuple[Callable[[], bytes], Callable[[Any, list[int]], object], int]] = {
    "sum": (lambda: random.Random(1).randbytes(64 << 20), lambda one, _: one.view("i8").sum(), 0),
    "tree": (tree, look_up, 20000),
    "sqlite": (database, query, 3000),
}


def make(folder: str) -> dict[str, int]:
    """Writes the memory of each program into a folder, in whole pages."""
    sizes = {}
    for name, (content, *_) in PROGRAMS.items():
        data = content()
        sizes[name] = -(-len(data) // PAGE) * PAGE
        (Path(folder) / name).write_bytes(data.ljust(sizes[name], b"\0"))
    return sizes


def program(where: str, name: str, nbytes: str) -> dict[str, float]:
    """Runs a program with a quarter of its memory here; "local": with all of it."""
    _, run, count = PROGRAMS[Path(name).name]
    keys = ranks(count)  # before the clock starts: they are no part of the memory
    memory = mapped(where, name, int(nbytes), int(nbytes) // 4 // PAGE * PAGE)
    return {"program_s": took(run, memory, keys)}


if __name__ == "__main__":
    WORKS: dict[str, Callable[..., Any]] = {
        "faults": faults, "touch": touch, "vectors": vectors, "writes": writes, "make": make,
        "program": program, "model": model,
    }  # fmt: skip
    print(json.dumps(WORKS[sys.argv[1]](*sys.argv[2:])))

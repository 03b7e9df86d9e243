"""`careful://` between hosts: fsspec's own tests, and programs that use it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("fsspec")

from hosts import MIB, Host, finish, make_file

ABSTRACT = Path(__file__).parents[2] / "support" / "fsspec_tests.py"
#: A program on h1.
HEAD = """
import pickle, sys, fsspec
fs = fsspec.filesystem("careful", host="h2")
"""


def run(host: Host, program: str, *argv: str) -> str:
    """Returns the output of a program."""
    code, out, err = finish(
        host.lab.start(host.name, sys.executable, "-c", HEAD + program, *argv, cwd=host.own)
    )
    assert code == 0, err
    assert err == ""
    return out


def test_fsspec__its_own_tests_pass(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    argv = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ABSTRACT)
    done = local.lab.run("h1", *argv, timeout=280)
    assert " passed" in done.stdout.splitlines()[-1]
    assert not list(remote.export.iterdir())
    local.assert_nothing_lost()


def test_open__reads_and_writes_in_blocks(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    data = make_file(remote.export / "big", 3 * MIB + 5)
    program = """
with fsspec.open("careful://h2/big") as file:
    whole = file.read(10)
    file.seek(-7, 2)
    print(file.tell(), file.size, len(file.read()))
    file.seek(0)
    whole = file.read()
with fsspec.open("careful://h2/copy", "wb", block_size=1 << 20) as file:
    for at in range(0, len(whole), 700_001):
        file.write(whole[at : at + 700_001])
    assert not fs.exists("copy")  # until it is whole
with fs.open("copy", "ab") as file:
    file.write(b"and more")
"""
    assert run(local, program) == f"{len(data) - 7} {len(data)} 7\n"
    assert (remote.export / "copy").read_bytes() == data + b"and more"
    assert (remote.export / "copy").stat().st_mode & 0o777 == 0o644


def test_open__a_file_that_is_replaced_stays_the_one_that_was_opened(
    pair: tuple[Host, Host],
) -> None:
    local, remote = pair
    data = make_file(remote.export / "file", 2 * MIB)
    program = """
with fs.open("file", cache_type="none") as file:
    fs.pipe("file", b"another")
    sys.stdout.write(file.read().hex())
print(fs.cat("file"))
"""
    assert run(local, program) == data.hex() + "b'another'\n"


def test_write__a_failure_leaves_nothing(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    (remote.export / "there").write_bytes(b"old")
    program = """
for mode, path, error in (("xb", "there", FileExistsError), ("wb", "no/such", FileNotFoundError)):
    try:
        with fs.open(path, mode) as file:
            file.write(b"new")
        print("written", path)
    except error as raised:
        print(path, raised.errno or "")
try:
    with fs.transaction:
        with fs.open("kept", "wb") as file:
            file.write(bytes(3 << 20))
        print(fs.exists("kept"))
        raise KeyError
except KeyError:
    print(fs.ls("/", detail=False))
with fs.transaction:
    with fs.open("kept", "wb") as file:
        file.write(bytes(3 << 20))
print(fs.size("kept"))
"""
    out = run(local, program).splitlines()
    assert out == ["there ", "no/such 2", "False", "['/there']", str(3 * MIB)]
    assert (remote.export / "there").read_bytes() == b"old"


def test_cat_ranges__of_many_files_at_once(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    for number in range(20):
        make_file(remote.export / str(number), 100_000, number)
    program = """
import random
want = [(str(i % 20), random.randrange(90_000)) for i in range(1000)]
found = fs.cat_ranges([p for p, _ in want], [at for _, at in want], [at + 99 for _, at in want])
whole = fs.cat([str(i) for i in range(20)])
assert all(part == whole[f"/{p}"][at : at + 99] for (p, at), part in zip(want, found))
tail, missing = fs.cat_ranges(["3", "none"], [-10, 0], None)
print(tail == whole["/3"][-10:], type(missing).__name__)
"""
    assert run(local, program) == "True CarefulFileNotFoundError\n"


def test_names__as_urls_and_across_processes(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    (remote.export / "a").mkdir()
    (remote.export / "a" / "b?c#d *").write_bytes(b"1234")
    (remote.export / "link").symlink_to("a")
    program = """
import multiprocessing, os
from concurrent.futures import ProcessPoolExecutor
from operator import methodcaller
again = pickle.loads(pickle.dumps(fs))
print(again is fs, again.cat("a/b?c#d *"), fs.unstrip_protocol("a/b"), fs.info("link")["type"])
found, path = fsspec.core.url_to_fs("careful://h2/a/b?c#d *")
print(found is fs, path, found.walk("/").__next__()[1], fs.glob("a/b*"), fs.find("", withdirs=True))
with fs.open("a/b?c#d *") as file:
    print(pickle.loads(pickle.dumps(file)).read())
    file.seek(1)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as another:
        def there(name, of, *words):
            return another.submit(methodcaller(name, *words), of).result()
        print(another.submit(os.getpid).result() != os.getpid())
        there("pipe", fs, "a/b?c#d *", b"12345")
        print(there("cat", fs, "a/b?c#d *"), there("read", file))
fs.mv("a", "z", recursive=True)
print(fs.find("/"), fs.du("/"))
fs.rm("z", recursive=True)
print(fs.ls("", detail=False), fs.isdir("z"))
"""
    name = "/a/b?c#d *"
    assert run(local, program).splitlines() == [
        "True b'1234' careful://h2/a/b directory",
        f"True {name} ['a'] ['{name}'] ['/', '/a', '{name}', '/link']",
        "b'1234'",
        "True",
        "b'12345' b'2345'",
        "['/link', '/z/b?c#d *'] 6",
        "['/link'] False",
    ]


def test_rm__of_a_link_leaves_its_target(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    (remote.export / "tree").mkdir()
    (remote.export / "tree" / "file").touch()
    for name in ("one", "two"):
        (remote.export / name).symlink_to("tree")
    (remote.export / "more").mkdir()
    (remote.export / "more" / "three").symlink_to("../tree")
    program = """
for path in ("one", "/two", "more"):
    fs.rm(path, recursive=True)
print(fs.find("/"), fs.modified("tree/file").year > 2000)
"""
    assert run(local, program) == "['/tree/file'] True\n"

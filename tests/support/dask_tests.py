"""distributed's own tests of comms, over careful://, run by pytest on a host of the lab.

A wheel of distributed has no tests, so CAREFUL_DISTRIBUTED and PYTHONPATH name a checkout.
CAREFUL_INSTANCES names two carefulds: the first connects and the second listens.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from careful.dask.backend import CarefulBackend
from distributed.comm.registry import backends
from distributed.utils_test import gen_test

HOST = "10.77.0.2"
ADDRESS = f"careful://{HOST}"


def theirs() -> ModuleType:
    path = Path(os.environ["CAREFUL_DISTRIBUTED"]) / "distributed/comm/tests/test_comms.py"
    spec = importlib.util.spec_from_file_location("test_comms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checks: Any = theirs()


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> None:
    local, remote = os.environ["CAREFUL_INSTANCES"].split()
    monkeypatch.setitem(backends, "careful", CarefulBackend(local, remote))


@gen_test()
async def test_client_server() -> None:
    await checks.check_client_server(ADDRESS, checks.tcp_eq(HOST))
    await checks.check_client_server(f"{ADDRESS}:3221", checks.tcp_eq(HOST, 3221))
    await checks.check_client_server("careful://127.0.0.1", checks.tcp_eq("127.0.0.1"))


@gen_test()
async def test_any_address() -> None:
    ours = checks.tcp_eq("10.77.0.1")  # of this host's eth1
    await checks.check_client_server("careful://", checks.tcp_eq("0.0.0.0"), ours)


@pytest.mark.parametrize(
    "check",
    [
        "comm_closed_implicit",
        "comm_closed_explicit",
        "many_listeners",
        "deserialize",
        "deserialize_roundtrip",
        "deserialize_eoferror",
    ],
)
@gen_test()
async def test_check(check: str) -> None:
    await getattr(checks, f"check_{check}")(ADDRESS)


@gen_test()
async def test_connect_timeout() -> None:
    await checks.check_connect_timeout(f"{ADDRESS}:44444")


@pytest.mark.parametrize("check", ["repr", "addresses"])
@gen_test()
async def test_pair(check: str) -> None:
    await getattr(checks, f"check_{check}")(*await checks.get_comm_pair(ADDRESS))

"""Runs commands on many hosts at once, and collects their JSON and errors.

Owns the processes: none outlives the call that started it. A failed host is an ordinary outcome.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from careful.errors import Ended, shown
from careful.fleet.hosts import Host
from careful.jsonout import Json
from careful.units import shown_bytes

_T = TypeVar("_T")
#: Programs at once: each ssh is a process and some descriptors.
AT_ONCE = 64
#: Most bytes of a program's output; bytes of one read.
_SAID_MAX, _PART_BYTES = 1 << 26, 1 << 16
#: Time for a program to end after SIGTERM, seconds.
_END_S = 5.0
_WITHHELD = 5  # exit status of a measurement with a figure that is withheld


@dataclass(frozen=True)
class Job:
    """A command on a host.

    Attributes:
        host: where.
        words: for carefulctl; --json is added.
        limit_s: longest time, seconds.
        name: of the job, if a host has several.
    """

    host: Host
    words: tuple[str, ...]
    limit_s: float
    name: str = ""

    @property
    def pair(self) -> tuple[str, str]:
        return self.host.name, self.name


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job.

    Attributes:
        job: which.
        error: the reason of a failure, a line; "" for success.
        figures: the JSON object that it printed, without its head.
        took_s: seconds.
    """

    job: Job
    error: str
    figures: dict[str, object] = field(default_factory=dict)
    took_s: float = 0.0

    @property
    def host(self) -> str:
        return self.job.host.name


def tables(found: object) -> list[dict[str, object]]:
    """Returns the tables in a list from a host, whose output may be of another release or false."""
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def number(found: Mapping[str, object], key: str) -> float | None:
    """Returns a number of such a table, or None."""
    value = found.get(key)
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    with suppress(OverflowError):
        if good and math.isfinite(value):  # type: ignore[arg-type]
            return float(value)  # type: ignore[arg-type]
    return None


def _object(text: bytes) -> Json | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _error(status: int, found: Json | None, said: bytes) -> str:
    """Returns why a program failed, in its own words if it printed some."""
    if found and isinstance(found.get("error"), str):
        return shown(found["error"])
    if status in (0, _WITHHELD) and found is not None:
        return ""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    if lines and status != 0:
        return shown(lines[-1].strip().removeprefix("carefulctl: "))
    if status < 0:
        return f"ended by signal {-status}"
    return f"ended with status {status}" if status else "it printed no JSON"


async def end(process: asyncio.subprocess.Process) -> None:
    """Ends a process and its local children, unless it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_S)


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    """Returns all output. Raises ValueError if it is too long."""
    assert stream
    parts, nbytes = [], 0
    while part := await stream.read(_PART_BYTES):
        parts.append(part)
        nbytes += len(part)
        if nbytes > _SAID_MAX:
            raise ValueError(f"printed more than {shown_bytes(_SAID_MAX)}")
    return b"".join(parts)


async def one(job: Job) -> Outcome:
    """Runs a job."""
    begun = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *job.host.command(*job.words, "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # we handle Ctrl-C
        )
    except OSError as error:
        return Outcome(job, f"{job.host.command()[0]}: {error.strerror}")
    try:
        async with asyncio.timeout(job.limit_s):
            out, err = await asyncio.gather(_all_of(process.stdout), _all_of(process.stderr))
            await process.wait()
    except TimeoutError:
        return Outcome(job, f"did not end within {job.limit_s:g} s", {}, job.limit_s)
    except ValueError as error:
        return Outcome(job, str(error), {}, time.monotonic() - begun)
    finally:
        await end(process)
    found = _object(out)
    assert process.returncode is not None
    why = _error(process.returncode, found, err)
    figures = {key: value for key, value in (found or {}).items() if key not in _ECHOED}
    return Outcome(job, why, figures, time.monotonic() - begun)


_ECHOED = ("schema", "command")


async def _all(jobs: Sequence[Job], told: Callable[[Outcome], None]) -> list[Outcome]:
    room = asyncio.Semaphore(AT_ONCE)

    async def run(job: Job) -> Outcome:
        async with room:
            outcome = await one(job)
        told(outcome)
        return outcome

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(job)) for job in jobs]
    return [task.result() for task in tasks]


def in_turns(
    turns: Sequence[Sequence[Job]], told: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """Runs the jobs of a turn in parallel, turn after turn; returns the outcomes in order.

    Args:
        turns: what to run.
        told: called with each outcome as it comes.

    Raises:
        Ended: SIGTERM or SIGHUP came, unless our parent ignores it.
    """

    async def work() -> list[Outcome]:
        return [one for turn in turns for one in await _all(turn, told)]

    return guarded(work())


def guarded(work: Coroutine[object, None, _T]) -> _T:
    """Runs work to its end; a signal cancels the work, so that no process stays.

    Raises Ended on SIGTERM or SIGHUP, unless our parent ignores it.
    """
    received: list[int] = []

    async def run() -> _T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup
                loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        if received:
            raise Ended(received[0]) from None
        raise

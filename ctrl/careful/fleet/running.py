"""Runs commands on many hosts at once, and collects their JSON and errors.

No process outlives the call that started it. A failed host is an ordinary outcome.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from careful import cancelled
from careful.errors import shown
from careful.fleet.hosts import Host
from careful.jsonout import Json
from careful.units import shown_bytes, shown_time

#: Programs at a time: each ssh is a process and some descriptors.
AT_ONCE = 64
#: The most bytes of a program's output, and of one read.
_OUTPUT_MAX, _PART_BYTES = 1 << 26, 1 << 16
#: Time for a program to end after SIGTERM, seconds.
_END_S = 5.0
_PARTLY = 3
_WITHHELD = 5  # exit status of a measurement with a figure that is withheld


@dataclass(frozen=True)
class Job:
    """A command on a host.

    Attributes:
        host: where it runs.
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
        job: the job.
        error: the reason of a failure, a line; "" for success.
        figures: the JSON object that it printed, without schema and command.
        took_s: duration, seconds.
    """

    job: Job
    error: str
    figures: dict[str, object] = field(default_factory=dict)
    took_s: float = 0.0

    @property
    def host(self) -> str:
        return self.job.host.name


def tables(value: object) -> list[dict[str, object]]:
    """Returns the tables in a list; a host may be of another release, or lie."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def number(table: Mapping[str, object], key: str) -> float | None:
    """Returns a finite number of a table, or None."""
    value = table.get(key)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    with suppress(OverflowError):
        if is_number and math.isfinite(value):  # type: ignore[arg-type]
            return float(value)  # type: ignore[arg-type]
    return None


def _object(text: bytes) -> Json | None:
    try:
        figures = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return figures if isinstance(figures, dict) else None


def _error(status: int, figures: Json | None, errors: bytes) -> str:
    """Returns why a program failed, if possible in its own words."""
    if figures and isinstance(figures.get("error"), str):
        return shown(figures["error"])
    # `status` ends with 3 if not all is well; the table shows it.
    if figures is not None and (
        status in (0, _WITHHELD) or (status == _PARTLY and figures.get("mute") == {})
    ):
        return ""
    lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
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


async def _read_all(stream: asyncio.StreamReader | None) -> bytes:
    """Returns all output. Raises ValueError: there is too much."""
    assert stream
    parts, nbytes = [], 0
    while part := await stream.read(_PART_BYTES):
        parts.append(part)
        nbytes += len(part)
        if nbytes > _OUTPUT_MAX:
            raise ValueError(f"printed more than {shown_bytes(_OUTPUT_MAX)}")
    return b"".join(parts)


async def run_job(job: Job) -> Outcome:
    """Runs a job."""
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *job.host.command(*job.words, "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not reach it: this process handles it
        )
    except OSError as error:
        return Outcome(job, f"{job.host.command()[0]}: {error.strerror}")
    try:
        async with asyncio.timeout(job.limit_s):
            output, errors = await asyncio.gather(
                _read_all(process.stdout), _read_all(process.stderr)
            )
            await process.wait()
    except TimeoutError:
        return Outcome(job, f"did not end within {shown_time(job.limit_s * 1e6)}", {}, job.limit_s)
    except ValueError as error:
        return Outcome(job, str(error), {}, time.monotonic() - began)
    finally:
        await end(process)
    printed = _object(output)
    assert process.returncode is not None
    reason = _error(process.returncode, printed, errors)
    figures = {key: value for key, value in (printed or {}).items() if key not in _ECHOED}
    return Outcome(job, reason, figures, time.monotonic() - began)


_ECHOED = ("schema", "command")


async def _run_all(jobs: Sequence[Job], on_outcome: Callable[[Outcome], None]) -> list[Outcome]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(job: Job) -> Outcome:
        async with slots:
            outcome = await run_job(job)
        on_outcome(outcome)
        return outcome

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(job)) for job in jobs]
    return [task.result() for task in tasks]


def in_turns(
    turns: Sequence[Sequence[Job]], on_outcome: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """Runs the jobs of a turn in parallel, turn after turn; returns the outcomes in order.

    on_outcome: called with each outcome as it comes. Raises as cancelled.run().
    """

    async def work() -> list[Outcome]:
        return [one for turn in turns for one in await _run_all(turn, on_outcome)]

    return cancelled.run(work())

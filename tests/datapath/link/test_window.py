"""Compares the window rule of link/window.h and the sequence check of abi.h with plain integers.

C counts modulo 2^32; the model counts without a limit. Both start anywhere, mostly near the
wrap-around, and must agree after each step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from inline_c import DATAPATH, bind, declarations, functions

WRAP = 1 << 32
EPROTO = -71
SEVERAL = settings(deadline=None, derandomize=True, max_examples=200)

#: Counters of an epoch, before the modulo.
counters = st.one_of(st.integers(WRAP - 300, WRAP + 300), st.integers(0, 2 * WRAP))
sizes = st.one_of(st.integers(4, 40), st.integers(4, 65536))


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The compiled headers: ffi and lib."""
    abi = functions(DATAPATH / "include/careful/abi.h")
    cdef = [*abi, declarations(DATAPATH / "link/window.h")]
    return bind(
        "\n".join(cdef), ["link/window.h", "careful/abi.h"], tmp_path_factory.mktemp("window")
    )


def tx_of(c: tuple[Any, Any], size: int, sent: int, credited: int) -> Any:
    ffi, _ = c
    return ffi.new("struct window_tx *", (size, sent % WRAP, credited % WRAP))


def rx_of(c: tuple[Any, Any], size: int, received: int, returned: int, announced: int) -> Any:
    ffi, lib = c
    threshold = lib.window_threshold(size)
    amounts = (received % WRAP, returned % WRAP, announced % WRAP)
    return ffi.new("struct window_rx *", (size, 0, threshold, *amounts))


@given(size=sizes)
@SEVERAL
def test_threshold__as_designed(c: tuple[Any, Any], size: int) -> None:
    _, lib = c
    assert lib.window_threshold(size) == max(2, size // 2)
    assert lib.window_cost_max(size) == size - max(2, size // 2) - 1
    assert lib.window_cost_max(size) >= 1


@given(size=sizes, last=counters, off=st.integers(-(WRAP // 2), WRAP // 2 - 1))
@SEVERAL
def test_sequence__due_within_the_window_alone(
    c: tuple[Any, Any], size: int, last: int, off: int
) -> None:
    _, lib = c
    for ahead in (off, 0, 1, size, size + 1, -1, -size):
        wanted = ahead if 1 <= ahead <= size else 0
        assert lib.careful_seq_ahead((last + ahead) % WRAP, last % WRAP, size) == wanted


@given(data=st.data(), size=sizes, credited=counters)
@SEVERAL
def test_credits__possible_ones_are_accepted(
    c: tuple[Any, Any], data: st.DataObject, size: int, credited: int
) -> None:
    _, lib = c
    outstanding = data.draw(st.integers(0, size))
    far = data.draw(st.integers(-(WRAP // 2), WRAP // 2 - 1))
    for more in (far, -1, 0, outstanding // 2, outstanding, outstanding + 1):
        tx = tx_of(c, size, credited + outstanding, credited)
        possible = 0 <= more <= outstanding
        assert lib.window_tx_credit(tx, (credited + more) % WRAP) == (0 if possible else EPROTO)
        assert tx.credits == (credited + more if possible else credited) % WRAP
        assert lib.window_tx_free(tx) == size - outstanding + (more if possible else 0)


@given(data=st.data(), size=sizes, announced=counters)
@SEVERAL
def test_receive__frames_with_credit_are_accepted(
    c: tuple[Any, Any], data: st.DataObject, size: int, announced: int
) -> None:
    _, lib = c
    held = data.draw(st.integers(0, size))
    returned = announced + data.draw(st.integers(0, held))
    for cost in {1, size - held, size - held + 1, size} - {0}:
        rx = rx_of(c, size, announced + held, returned, announced)
        possible = held + cost <= size
        assert lib.window_rx_receive(rx, cost) == (0 if possible else EPROTO)
        assert rx.received == (announced + held + (cost if possible else 0)) % WRAP
        assert lib.window_rx_owed(rx) == returned - announced


@dataclass
class End:
    """One end: C's state, and the same in unbounded integers."""

    tx: Any
    rx: Any
    sent: int
    credits: int
    received: int
    returned: int
    announced: int
    #: Frames on their way here: cost and credits.
    wire: deque[tuple[int, int]] = field(default_factory=deque)


class Windows(RuleBasedStateMachine):
    """Two ends that send by the rule, over a link that delivers all frames in order."""

    c: tuple[Any, Any]

    @initialize(
        size=st.lists(st.integers(4, 24), min_size=2, max_size=2),
        at=st.lists(counters, min_size=2, max_size=2),
    )
    def begin(self, size: list[int], at: list[int]) -> None:
        """Begins with nothing outstanding. at[k]: buffers that end k's frames filled; size[k]: the
        window at end k.
        """
        self.size = size
        self.ends = [
            End(
                tx_of(self.c, size[1 - k], at[k], at[k]),
                rx_of(self.c, size[k], at[1 - k], at[1 - k], at[1 - k]),
                at[k],
                at[k],
                at[1 - k],
                at[1 - k],
                at[1 - k],
            )
            for k in range(2)
        ]

    def free(self, k: int) -> int:
        return self.size[1 - k] - (self.ends[k].sent - self.ends[k].credits)

    def put(self, k: int, cost: int) -> None:
        """Lets end k send a frame with its owed credits."""
        _, lib = self.c
        end = self.ends[k]
        lib.window_tx_send(end.tx, cost)
        end.sent += cost
        assert lib.window_rx_announce(end.rx) == end.returned % WRAP
        end.announced = end.returned
        self.ends[1 - k].wire.append((cost, end.announced))

    def update(self, k: int) -> bool:
        """Lets end k send an update if one is due and allowed."""
        _, lib = self.c
        end = self.ends[k]
        due = end.returned - end.announced >= max(2, self.size[k] // 2)
        assert lib.window_rx_update_due(end.rx) == due
        assert lib.window_tx_may_update(end.tx) == (self.free(k) >= 1)
        if due and self.free(k) >= 1:
            self.put(k, lib.WINDOW_UPDATE_COST)
            return True
        return False

    def take(self, k: int) -> None:
        """Lets end k receive a frame."""
        _, lib = self.c
        end = self.ends[k]
        cost, credited = end.wire.popleft()
        assert lib.window_rx_receive(end.rx, cost) == 0
        assert lib.window_tx_credit(end.tx, credited % WRAP) == 0
        end.received += cost
        end.credits = credited

    def give_back(self, k: int, buffers: int) -> None:
        _, lib = self.c
        lib.window_rx_return(self.ends[k].rx, buffers)
        self.ends[k].returned += buffers

    @rule(k=st.integers(0, 1), cost=st.integers(1, 12))
    def send(self, k: int, cost: int) -> None:
        _, lib = self.c
        cost = min(cost, lib.window_cost_max(self.size[1 - k]))
        may = lib.window_tx_may_send(self.ends[k].tx, cost)
        assert may == (self.free(k) > cost)
        if may:
            self.put(k, cost)

    @rule(k=st.integers(0, 1))
    def send_update(self, k: int) -> None:
        self.update(k)

    @precondition(lambda self: any(end.wire for end in self.ends))
    @rule(k=st.integers(0, 1))
    def receive(self, k: int) -> None:
        self.take(k if self.ends[k].wire else 1 - k)

    @rule(k=st.integers(0, 1), most=st.integers(1, 24))
    def release(self, k: int, most: int) -> None:
        """Lets a handler release buffers."""
        self.give_back(k, min(most, self.ends[k].received - self.ends[k].returned))

    @rule()
    def settle(self) -> None:
        """Delivers and releases everything: then both ends may send the largest frame."""
        _, lib = self.c
        updates = 0
        moved = True
        while moved:
            moved = False
            for k in range(2):
                while self.ends[k].wire:
                    self.take(k)
                self.give_back(k, self.ends[k].received - self.ends[k].returned)
                moved |= (sent := self.update(k))
                updates += sent
            assert updates <= 4, "updates answer each other"
        for k in range(2):
            assert lib.window_tx_may_send(self.ends[k].tx, lib.window_cost_max(self.size[1 - k]))

    @invariant()
    def c_counts_as_we_do(self) -> None:
        _, lib = self.c
        for k, end in enumerate(getattr(self, "ends", [])):
            assert (end.tx.sent, end.tx.credits) == (end.sent % WRAP, end.credits % WRAP)
            assert end.rx.received == end.received % WRAP
            assert end.rx.returned == end.returned % WRAP
            assert lib.window_tx_free(end.tx) == self.free(k) >= 0
            assert lib.window_rx_owed(end.rx) == end.returned - end.announced

    @invariant()
    def every_frame_finds_a_buffer(self) -> None:
        for k, end in enumerate(getattr(self, "ends", [])):
            on_their_way = sum(cost for cost, _ in end.wire)
            assert end.received - end.returned + on_their_way <= self.size[k]


def test_rule__two_ends_never_overrun_nor_stall(c: tuple[Any, Any]) -> None:
    machine = type("Bound", (Windows,), {"c": c})
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
    several = settings(
        deadline=None,
        derandomize=True,
        max_examples=60,
        stateful_step_count=60,
        suppress_health_check=quiet,
    )
    run_state_machine_as_test(machine, settings=several)

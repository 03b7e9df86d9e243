"""Fakes two hosts in virtual time for pathchar and the stages inside hosts, with known (g, G)."""

from __future__ import annotations

import errno
import random
from typing import Any

from careful._abi import lib
from careful.errors import CarefulError
from careful.measure.path import host_stages
from careful.measure.path.hops import Path
from careful.measure.path.pathchar import Options, Pathchar
from careful.measure.probes.ping import PingReply
from careful.measure.probes.udp import Answer, Reply


class FakeHosts:
    """(g, G) of each stage, µs and µs per KiB; two hops before the host."""

    def __init__(self, **bent: Any) -> None:
        self.g_G = {"host_tx": (1.0, 0.5), "net_tx": (4.0, 1.0), "host_rx": (9.0, 2.0)}
        self.g_G |= {"store": (20.0, 3.0)}
        self.hops = ((250.0, 800.0), (350.0, 1600.0), (150.0, 1000.0))
        self.scratch: int = lib.CAREFUL_SCRATCH_MEMORY
        self.cpus = (0, 0, 1)
        self.inline = False
        self.jitter_us, self.probe_jitter_us = 5.0, 1.0
        self.silent = False
        self.silent_after = self.ends_after = 10**9  # probes that go past XDP
        self.hops_silent_after = 10**9  # probes of hops
        self.now_s = 0.0
        self.probes_count = 0
        self.asked: list[int] = []
        self.dice = random.Random(3)
        vars(self).update(bent)

    def _us(self, name: str, size: int) -> float:
        g, G = self.g_G[name]
        return g + G * size / 1024 + self.dice.expovariate(1 / self.jitter_us)

    def _way_us(self, ttl: int, size: int) -> float:
        return sum(latency + G * size / 1024 for latency, G in self.hops[:ttl])

    def probe(self, ttl: int, size: int, timeout_s: float, /) -> Reply:
        self.probes_count += 1
        ttl = min(ttl, len(self.hops))
        if self.probes_count > self.hops_silent_after and ttl == len(self.hops):
            self.now_s += timeout_s
            return Reply(Answer.SILENT)
        last = ttl == len(self.hops)
        answer_bytes = 76 if last else 576
        rtt_us = self._way_us(ttl, size) + self._way_us(ttl, answer_bytes)
        rtt_us += 5 + self.dice.expovariate(1 / self.probe_jitter_us)
        self.now_s += rtt_us / 1e6
        answer = Answer.REACHED if last else Answer.EXPIRED
        return Reply(answer, f"10.0.{ttl}.1", rtt_us, answer_bytes, 5.0)

    def ask(self, stage: int, size: int, timeout_s: float, /) -> PingReply:
        self.asked.append(stage)
        self.now_s += 0.01
        if len(self.asked) > self.ends_after:
            raise CarefulError(errno.ECONNRESET, "its careful ended", "h2")
        if self.silent or len(self.asked) > self.silent_after:
            self.now_s += timeout_s
            return PingReply(-110)
        one_way_us = self._us("net_tx", size) + self._way_us(3, size)
        return PingReply(
            status=0,
            stage=stage,
            host_tx_us=self._us("host_tx", size),
            net_tx_us=self._us("net_tx", size),
            path_us=2 * one_way_us,
            one_way_us=one_way_us,
            host_rx_us=self._us("host_rx", size),
            store_us=self._us("store", size) if self.scratch else 0.0,
            scratch=self.scratch,
            store_inline=self.inline,
            cpus=self.cpus,
        )

    def path(self, **options: Any) -> Path:
        found = Pathchar(
            self.probe, 3826, Options(**options), clock=lambda: self.now_s, sleep=lambda _: None
        )
        return found.run()

    def measure(self, **options: Any) -> host_stages.Stages:
        words = {"kick_runs_all": False, "clock": lambda: self.now_s} | options
        return host_stages.measure(self.ask, self.path(), **words)

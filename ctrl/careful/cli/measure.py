"""`carefulctl measure`: what a path is made of."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from careful.cli.common import config_option, json_option, show
from careful.cli.params import BYTES
from careful.control import config
from careful.measure import pathchar as plan
from careful.report import measuring


@click.group()
def measure() -> None:
    """Measure a path; every figure has a 95 % interval."""


@measure.command()
@click.argument("host")
@click.option("--sizes", "sizes_count", default=12, show_default=True, help="How many sizes.")
@click.option("--min-bytes", type=BYTES, default=plan.LEAST_BYTES, show_default=True)
@click.option("--max-bytes", type=BYTES, help="Largest probe  [default: what the path takes]")
@click.option("--max-hops", default=30, show_default=True)
@click.option(
    "--precision",
    default=0.02,
    show_default=True,
    help="Half of G's interval over G at which a hop needs no more probes.",
)
@click.option("--seconds", default=25.0, show_default=True, help="No new round after that.")
@click.option("--timeout-s", default=1.0, show_default=True, help="Longest wait for an answer.")
@click.option("--background", is_flag=True, help="Take at most 1 % of each link's time.")
@config_option
@json_option
def pathchar(
    host: str,
    sizes_count: int,
    min_bytes: int,
    max_bytes: int | None,
    max_hops: int,
    precision: float,
    seconds: float,
    timeout_s: float,
    background: bool,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Latency and G of each hop to HOST, across routers that know nothing of careful.

    UDP probes whose TTL ends at each hop in turn; routers answer with ICMP. IPv4, no privilege.
    """
    options = plan.Options(
        sizes_count=sizes_count,
        min_bytes=min_bytes,
        max_hops=max_hops,
        precision=precision,
        seconds=seconds,
        timeout_s=timeout_s,
        background=background,
        **({} if max_bytes is None else {"max_bytes": max_bytes}),
    )
    address = config.load(config_path).resolve(host)
    found = plan.measure(address, options)
    inputs = {"host": host, "address": str(address), **asdict(options), **measuring.environment()}
    figures = measuring.pathchar_figures(found)
    show(as_json, "measure pathchar", inputs, figures, measuring.pathchar_table(found, host))

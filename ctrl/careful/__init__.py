"""careful: a kernel-bypass transport for networks that do not lose frames."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from careful.control.config import Config
    from careful.node import Node

__version__ = "0.1.0"


def open(  # noqa: A001 (as in os.open)
    ifname: str,
    instance: str | None = None,
    config: Config | Path | None = None,
    **options: Any,
) -> Node:
    """Own a NIC queue: an instance of libcareful in this program; see node.Node.

    >>> with careful.open("eth1") as node:
    ...     print(node.connect("h2").request(7, b"hello").wait().payload)
    """
    from careful.node import Node  # the binding: not for whoever wants the model alone

    return Node(ifname, instance, config, **options)

"""Instances that a Python program owns: requests, replies, stores and gets (P4).

>>> node = careful.open("eth1")
"""

from careful.errors import CarefulError
from careful.node.memory import FileRange
from careful.node.message import LateReply, Message, Reply
from careful.node.node import Node
from careful.node.operation import Operation, Result
from careful.node.peer import Peer
from careful.node.region import Region

__all__ = [
    "CarefulError",
    "FileRange",
    "LateReply",
    "Message",
    "Node",
    "Operation",
    "Peer",
    "Region",
    "Reply",
    "Result",
]

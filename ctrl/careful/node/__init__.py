"""Instances that a Python program owns: requests, replies, stores and gets (P4).

>>> node = careful.open("eth1")

careful.__all__ names the public API.
"""

from careful.errors import CarefulError as CarefulError
from careful.node.memory import FileRange as FileRange
from careful.node.message import LateReply as LateReply
from careful.node.message import Message as Message
from careful.node.message import Reply as Reply
from careful.node.node import Node as Node
from careful.node.operation import Operation as Operation
from careful.node.operation import RemoteError as RemoteError
from careful.node.operation import Result as Result
from careful.node.outgoing import Outgoing as Outgoing
from careful.node.peer import Peer as Peer
from careful.node.peer import RemoteRegion as RemoteRegion
from careful.node.region import Region as Region

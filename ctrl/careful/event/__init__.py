"""Events: how the nodes of a parallel program communicate (P2 section 5.1).

P nodes share one channel. An event is a numbered step of the program; each node sends and receives
in ascending order. Within an event a node may send a message to one node or to all others. A node
receives one message, or, in a crowd event, one message from every other node.

    with careful.open("eth1") as node:
        with careful.event.join(node, ["h1", "h2", "h3"], rank=0) as events:
            events.send(array, event=1, crowd=True)  # to all
            for _ in range(events.nodes - 1):
                events.receive(event=1, into=array)

See `carefulctl help events`. The example is `python -m careful.event.jacobi`.
"""

from careful.event.group import ANY as ANY
from careful.event.group import Events as Events
from careful.event.group import Fragment as Fragment
from careful.event.group import Message as Message
from careful.event.group import Status as Status
from careful.event.join import ajoin as ajoin
from careful.event.join import join as join

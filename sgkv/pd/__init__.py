"""Whole chunks pushed from one process's memory into another's, over Mooncake's Transfer Engine.

The bytes go through the engine; who may write where is agreed on over a small rendezvous socket.
"""

from sgkv.pd.engine import Engine
from sgkv.pd.receiver import Receiver
from sgkv.pd.sender import Sender
from sgkv.pd.tier import push, taking_into
from sgkv.pd.window import Outcome

__all__ = ["Engine", "Outcome", "Receiver", "Sender", "push", "taking_into"]

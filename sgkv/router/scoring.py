"""When the first token would come, from each engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sgkv.control.places import Device
from sgkv.router.settings import Costs


@dataclass(slots=True)
class Load:
    """What an engine has to do before it comes to the next prompt."""

    tokens: int = 0
    """Of prompts that were sent there and have no first token yet, without what it need not compute."""
    running: int = 0
    """Requests that it has not ended."""


def seconds(costs: Costs, load: Load, tokens: int, held: Mapping[Device, int]) -> float:
    """Until the first token of a prompt of so many tokens, of which `held` leading ones are on each device.

    What is on the engine's own device is free; what is only further away is loaded, the rest computed.
    Each token counts at the fastest device that has it, for the devices hold prefixes of one prompt.
    """
    waiting = load.tokens / costs.prefill + load.running * costs.running
    reached, loading = min(held.get(Device.GPU, 0), tokens), 0.0
    for device, rate in ((Device.CPU, costs.cpu), (Device.DISK, costs.disk), (Device.REMOTE, costs.remote)):
        further = min(held.get(device, 0), tokens)
        if further > reached:
            loading += (further - reached) / rate
            reached = further
    return waiting + loading + (tokens - reached) / costs.prefill


def covered(tokens: int, held: Mapping[Device, int]) -> int:
    """Tokens that need not be computed."""
    return min(tokens, max(held.values(), default=0))

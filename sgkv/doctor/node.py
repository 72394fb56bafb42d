"""The node's daemon, where engines attach to one: whether it lets them in, and whether they fit together."""

from __future__ import annotations

from collections.abc import Iterator

from sgkv.config import ResolvedConfig
from sgkv.config.units import approximate_size
from sgkv.doctor.finding import Finding, note, ok, problem

TOPIC = "node"


def examine(config: ResolvedConfig) -> Iterator[Finding]:
    """Nothing with `mode: embedded`."""
    if config.config.mode != "attach":
        return
    from sgkv.node.lane import RefusedError
    from sgkv.node.look import status_of
    from sgkv.node.rules import shown
    from sgkv.node.wire import WireError

    try:
        welcome, facts = status_of(config.socket, shown(config.config.node.token) or "")
    except RefusedError as error:
        yield problem(TOPIC, f"the daemon at {config.socket} refuses us: {error}", "see docs/node.md, Access")
    except (WireError, OSError) as error:
        yield problem(TOPIC, f"no daemon answers at {config.socket}: {error}", "start it: sgkv node")
    else:
        yield ok(TOPIC, f"process {facts['pid']} answers, version {facts['version']}")
        if welcome.chunk_tokens != config.config.chunk_tokens:
            sizes = f"{welcome.chunk_tokens} tokens, of the engine {config.config.chunk_tokens}"
            yield problem(TOPIC, f"chunks of the daemon are of {sizes}", "give both the same chunk_tokens")
        if not any(name != "cpu" for name in facts["tiers"]):
            size = approximate_size(welcome.arena_bytes)
            yield note(TOPIC, f"it keeps KV in {size} of memory alone, and loses it when it ends")

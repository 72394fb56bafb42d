"""Two servers that restore the same prompt again and again, turn and turn about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgkv.testing.pairs import Pair, ask_in_turns
from sgkv.testing.server import SglangServer
from sgkv.testing.waiting import wait_until


def restored_in_turns(
    plain: SglangServer, ours: SglangServer, ids: Sequence[int], tokens: int, pairs: int
) -> list[Pair]:
    """So many pairs of answers to one prompt, of which both restore `tokens` from their stores each time.

    Raises RuntimeError where one of them computed what it should have restored.
    """
    for server in (plain, ours):
        _store(server, ids, tokens)

    def prompts() -> Iterator[Sequence[int]]:
        for _ in range(pairs + 1):
            plain.flush()
            ours.flush()
            yield ids

    found = list(ask_in_turns(plain, ours, prompts()))[1:]
    restored = {asked.answer.cached_tokens for pair in found for asked in pair}
    if restored != {tokens}:
        raise RuntimeError(f"{sorted(restored)} tokens were restored, and not {tokens} each time")
    return found


def _store(server: SglangServer, ids: Sequence[int], tokens: int) -> None:
    """Have a server compute a prompt, and wait until it could restore it."""
    server.generate(ids, 1)

    def restored() -> bool:
        server.flush()
        return server.generate(ids, 1).cached_tokens == tokens

    wait_until(restored, f"{tokens} tokens of the prompt to be restored")

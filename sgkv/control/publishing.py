"""What a store's tiers hold, as KV events in the engines' own form, for routers that know no other.

Frames, numbers and replays are those of `ZmqEventPublisher` (SGLang 0.5.23, vLLM 0.32): topic, number (8
bytes, big-endian, from 0), batch. A block is a page; its hash is what SGLang calls it, the first 8 bytes of
the page hash as a signed number. Tokens are not known to a store, so ``token_ids`` is empty and there is no
parent.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import zmq

from sgkv.boundary import contained
from sgkv.config.control import Publishing
from sgkv.control.places import Device
from sgkv.control.wire import Change
from sgkv.counters import Counters
from sgkv.store.members import ChunkMembers

logger = logging.getLogger("sgkv")

_MEDIA = {Device.CPU: "CPU_PINNED", Device.DISK: "DISK", Device.REMOTE: "EXTERNAL"}
"""Of SGLang's `StorageMedium`."""
_KEPT = 10_000
"""Batches that can be asked for again."""
_WAITING = 1000
_CLOSE_SECONDS = 1.0
_END = (-1).to_bytes(8, "big", signed=True)
_BLOCK_BYTES = 8


def events(changes: Sequence[Change], members: ChunkMembers, page_tokens: int) -> Iterator[dict[str, Any]]:
    """Changes as events, without those of the engine's own device, which it publishes itself."""
    for change in changes:
        if change.device not in _MEDIA:
            continue
        pages = change.split()
        if change.kind == "c":
            pages = [page for last in pages for page in members.pages(last)]
        blocks = [int.from_bytes(page[:_BLOCK_BYTES], "big", signed=True) for page in pages]
        event: dict[str, Any] = {"block_hashes": blocks, "medium": _MEDIA[change.device]}
        if change.came:
            event |= {"type": "BlockStored", "parent_block_hash": None, "token_ids": [], "lora_id": None}
            event["block_size"] = page_tokens
        else:
            event["type"] = "BlockRemoved"
        yield event


class Publisher:
    """Started by its constructor, ended by `close`. Nobody waits for it: past its queue batches are
    dropped.
    """

    def __init__(self, config: Publishing, counters: Counters) -> None:
        """Raises OSError where it cannot listen."""
        self._topic = config.topic.encode()
        self._counters = counters
        self._context = zmq.Context()
        self._queue: queue.Queue[tuple[int, bytes]] = queue.Queue(_WAITING)
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._number = 0
        self._wake = self._pair(bind=True)
        self._events = self._context.socket(zmq.PUB)
        self._replays = self._context.socket(zmq.ROUTER)
        try:
            self._events.bind(config.endpoint)
            if config.replay is not None:
                self._replays.bind(config.replay)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise OSError(f"KV events cannot be published at {config.endpoint}: {error}") from error
        self._thread = threading.Thread(target=self._run, name="sgkv-control-publisher", daemon=True)
        self._thread.start()

    def publish(self, told: Sequence[dict[str, Any]]) -> None:
        """One batch. By one thread at a time."""
        if not told:
            return
        try:
            self._queue.put_nowait((self._number, msgspec.msgpack.encode([time.time(), told, 0])))
        except queue.Full:
            self._counters.add("event_batches_dropped")
            return
        finally:
            self._number += 1  # of a dropped one too: subscribers see the gap
        with suppress(zmq.Again):  # as many wait to wake it as can
            self._wake.send(b"e", zmq.NOBLOCK)

    def close(self) -> None:
        self._wake.send(b"")
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._context.destroy(linger=0)

    def _run(self) -> None:
        woken = self._pair(bind=False)
        poller = zmq.Poller()
        for socket in (woken, self._replays):
            poller.register(socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if woken in ready and not woken.recv():
                return
            with contained("publishing what the tiers hold", self._counters):
                self._send_all()
                if self._replays in ready:
                    self._replay(self._replays.recv_multipart())

    def _send_all(self) -> None:
        while not self._queue.empty():
            number, batch = self._queue.get_nowait()
            self._events.send_multipart([self._topic, number.to_bytes(8, "big"), batch])
            self._kept.append((number, batch))

    def _replay(self, asked: Sequence[bytes]) -> None:
        """Every batch from a number on, then the end."""
        if len(asked) != 3 or len(asked[2]) != 8:
            return
        who, first = asked[0], int.from_bytes(asked[2], "big")
        for number, batch in self._kept:
            if number >= first:
                self._replays.send_multipart([who, b"", self._topic, number.to_bytes(8, "big"), batch])
        self._replays.send_multipart([who, b"", b"", _END, b""])

    def _pair(self, *, bind: bool) -> zmq.Socket[bytes]:
        pair = self._context.socket(zmq.PAIR)
        (pair.bind if bind else pair.connect)("inproc://wake")
        return pair

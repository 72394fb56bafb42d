"""Listening to an engine's KV events over ZeroMQ.

A message has three frames: topic, number (8 bytes, big-endian, from 0) and batch. A publisher with a replay
endpoint answers a number with all batches from there on that it still has, and ends with the number -1
(`ZmqEventPublisher` of SGLang 0.5.23 and vLLM 0.32, which differ in whether replies repeat the topic).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

import msgspec
import zmq

from sgkv.boundary import contained
from sgkv.config.control import EngineEvents
from sgkv.control.events import decode
from sgkv.control.residency import Residency
from sgkv.counters import Counters

logger = logging.getLogger("sgkv")

_HIGH_WATER = 10_000
"""Messages that wait for us; past it the publisher's side drops, which their numbers tell."""
_REPLAY_MS = 2000
_CLOSE_SECONDS = 1.0
_END = -1


class Listener:
    """Started by its constructor, ended by `close`. The engine never waits for it."""

    def __init__(self, source: EngineEvents, residency: Residency, counters: Counters) -> None:
        self._source = source
        self._residency = residency
        self._counters = counters
        self._context = zmq.Context()
        self._expected = 0
        self._stop = self._pair(bind=True)
        self._thread = threading.Thread(target=self._run, name="sgkv-control-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.send(b"")
        self._thread.join(_CLOSE_SECONDS)
        self._stop.close(linger=0)
        if not self._thread.is_alive():
            self._context.term()

    def _run(self) -> None:
        events, stop = self._context.socket(zmq.SUB), self._pair(bind=False)
        with events, stop:
            events.set_hwm(_HIGH_WATER)
            events.setsockopt(zmq.LINGER, 0)
            events.subscribe(self._source.topic)
            events.connect(self._source.endpoint)
            poller = zmq.Poller()
            poller.register(events, zmq.POLLIN)
            poller.register(stop, zmq.POLLIN)
            while stop not in dict(poller.poll()):
                with contained("following the engine's events", self._counters):
                    self._heard(events.recv_multipart())

    def _heard(self, frames: Sequence[bytes]) -> None:
        number = _number(frames)
        if number is None:
            return
        if number != self._expected:
            self._missed(number)
        if number >= self._expected:
            self._apply(number, frames[-1])

    def _missed(self, number: int) -> None:
        """Batches before this one did not come: ask for them, or know nothing."""
        if number < self._expected:  # another process publishes there now
            self._residency.forget()
            self._expected = 0
        for replayed, payload in self._replayed(self._expected):
            if replayed == self._expected:
                self._apply(replayed, payload)
        if self._expected < number:
            self._residency.forget()
            self._counters.add("engine_events_missed", number - self._expected)
            self._expected = number

    def _apply(self, number: int, payload: bytes) -> None:
        self._expected = number + 1
        try:
            batch = decode(payload)
        except msgspec.MsgspecError as error:
            self._residency.forget()
            self._counters.add("engine_events_missed")
            logger.warning("sgkv: an event of the engine's is not understood: %s", error)
            return
        self._residency.apply(batch.events)

    def _replayed(self, start: int) -> Iterator[tuple[int, bytes]]:
        if self._source.replay is None:
            return
        with self._context.socket(zmq.DEALER) as asking:  # one question has many answers
            asking.setsockopt(zmq.LINGER, 0)
            asking.setsockopt(zmq.RCVTIMEO, _REPLAY_MS)
            asking.connect(self._source.replay)
            asking.send_multipart([b"", start.to_bytes(8, "big")])
            try:
                while (number := _number(frames := asking.recv_multipart())) is not None and number != _END:
                    yield number, frames[-1]
            except zmq.ZMQError:
                return

    def _pair(self, *, bind: bool) -> zmq.Socket[bytes]:
        pair = self._context.socket(zmq.PAIR)
        (pair.bind if bind else pair.connect)("inproc://stop")
        return pair


def _number(frames: Sequence[bytes]) -> int | None:
    """Of a message or a reply: its last frame but one."""
    if len(frames) < 2 or len(frames[-2]) != 8:
        return None
    return int.from_bytes(frames[-2], "big", signed=True)

"""Who has how much of a prompt, as instances report it, and what becomes of reports that are lost."""

from __future__ import annotations

import os
import random

import pytest

from sgkv.control.places import Device
from sgkv.control.registry import Match, Registry, Shelf

NAMESPACE = "a" * 32
PAGES, CHUNKS = Shelf(NAMESPACE, "p"), Shelf(NAMESPACE, "c")
PER_CHUNK = 4


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def chain(pages: int) -> list[bytes]:
    return [os.urandom(16) for _ in range(pages)]


def chunks_of(hashes: list[bytes]) -> list[bytes]:
    return hashes[PER_CHUNK - 1 :: PER_CHUNK]


def joined(registry: Registry, *names: str, epoch: int = 1) -> Registry:
    for name in names:
        assert registry.receive(name, epoch, 0) == "apply"
        registry.complete(name)
    return registry


def found(registry: Registry, hashes: list[bytes], **options: int) -> list[tuple[str, int, dict[str, int]]]:
    matches = registry.batched_p2p_lookup(NAMESPACE, hashes, PER_CHUNK, **options)
    return [(match.instance, match.pages, match.devices) for match in matches]


def swept(registry: Registry) -> Registry:
    while registry.sweep():
        pass
    return registry


def test_pages_and_chunks_of_every_device_count() -> None:
    registry, hashes = joined(Registry(), "one", "two"), chain(10)
    registry.batched_admit(CHUNKS, chunks_of(hashes), "one", Device.DISK)
    registry.batched_admit(PAGES, hashes[8:], "one", Device.CPU)
    registry.batched_admit(PAGES, hashes[:3], "two", Device.GPU)
    assert found(registry, hashes) == [("one", 10, {"disk": 8}), ("two", 3, {"gpu": 3})]
    assert found(registry, hashes, limit=1) == [("one", 10, {"disk": 8})]
    assert found(registry, chain(4)) == []
    assert registry.batched_p2p_lookup("b" * 32, hashes, PER_CHUNK) == []


def test_what_was_evicted_ends_the_match() -> None:
    registry, hashes = joined(Registry(), "one", "two"), chain(8)
    for name in ("one", "two"):
        registry.batched_admit(PAGES, hashes, name, Device.CPU)
    registry.batched_evict(PAGES, hashes[5:6], "one", Device.CPU)
    registry.batched_evict(PAGES, hashes, "two", Device.DISK)
    assert found(registry, hashes) == [("two", 8, {"cpu": 8}), ("one", 5, {"cpu": 5})]
    registry.batched_evict(PAGES, hashes, "one", Device.CPU)
    registry.batched_evict(PAGES, hashes, "two", Device.CPU)
    assert (found(registry, hashes), registry.hashes) == ([], 0)


def test_a_lost_report_is_noticed_and_a_repeated_one_does_nothing() -> None:
    registry = joined(Registry(), "one")
    assert registry.receive("one", 1, 1) == "apply"
    assert registry.receive("one", 1, 1) == "repeated"
    assert registry.receive("one", 1, 3) == "resync"
    assert registry.receive("one", 1, 2) == "apply"
    assert registry.receive("stranger", 1, 5) == "resync"
    assert registry.receive("one", 0, 3) == "outdated"


def test_a_new_account_replaces_the_old_one_when_it_is_complete() -> None:
    registry, hashes = joined(Registry(), "one"), chain(8)
    registry.batched_admit(PAGES, hashes, "one", Device.CPU)
    assert registry.receive("one", 2, 0) == "apply"
    registry.batched_admit(PAGES, hashes[:2], "one", Device.CPU)
    assert found(registry, hashes) == [("one", 8, {"cpu": 8})]
    registry.complete("one")
    assert found(registry, hashes) == [("one", 2, {"cpu": 2})]
    assert swept(registry).hashes == 2


def test_an_account_that_stopped_half_way_leaves_nothing() -> None:
    registry, hashes = joined(Registry(max_instances=2), "one"), chain(8)
    registry.batched_admit(PAGES, hashes[:1], "one", Device.CPU)
    for epoch in range(2, 20):
        assert registry.receive("one", epoch, 0) == "apply"
        registry.batched_admit(PAGES, hashes, "one", Device.DISK)
        swept(registry)
    registry.complete("one")
    assert found(registry, hashes) == [("one", 8, {"disk": 8})]
    assert swept(registry).hashes == 8


def test_who_is_silent_is_forgotten_and_comes_back_with_a_full_account() -> None:
    clock = Clock()
    registry, hashes = joined(Registry(stale_after=10, clock=clock), "one", "two"), chain(4)
    registry.batched_admit(PAGES, hashes, "one", Device.CPU)
    clock.now = 9
    assert registry.receive("two", 1, 1) == "apply"
    assert found(registry, hashes)
    clock.now = 11
    assert found(registry, hashes) == []
    assert list(registry.instances) == ["two"]
    assert swept(registry).hashes == 0
    assert registry.receive("one", 1, 1) == "resync"
    joined(registry, "one")


def test_the_number_of_instances_and_of_hashes_is_bounded() -> None:
    registry = joined(Registry(max_hashes=10, max_instances=1), "one", "two")
    with pytest.raises(ValueError, match="may be no more"):
        registry.receive("three", 1, 0)
    registry.batched_admit(PAGES, chain(8), "one", Device.CPU)
    registry.batched_admit(PAGES, chain(8), "one", Device.CPU)
    assert (registry.hashes, registry.dropped) == (10, 6)


@pytest.mark.parametrize("seed", range(5))
def test_it_answers_as_plain_sets_would(seed: int) -> None:
    rng = random.Random(seed)
    names, devices = [f"i{number}" for number in range(20)], list(Device)
    registry = joined(Registry(), *names)
    held = {(name, device): set() for name in names for device in devices}
    prompts = [chain(40) for _ in range(3)]
    epochs = dict.fromkeys(names, 1)
    for _ in range(600):
        name, device, prompt = rng.choice(names), rng.choice(devices), rng.choice(prompts)
        some = prompt[: rng.randrange(40)] if rng.random() < 0.8 else rng.sample(prompt, 5)
        act = rng.random()
        if act < 0.75:
            registry.batched_admit(PAGES, some, name, device)
            held[name, device].update(some)
        elif act < 0.97:
            registry.batched_evict(PAGES, some, name, device)
            held[name, device].difference_update(some)
        else:
            epochs[name] += 1
            joined(registry, name, epoch=epochs[name])
            for device in devices:
                held[name, device].clear()
    for prompt in prompts:
        expected = {}
        for name in names:
            alone = {device: run(prompt, held[name, device]) for device in devices}
            pages = run(prompt, set().union(*(held[name, device] for device in devices)))
            if pages:
                expected[name] = Match(name, pages, {device: n for device, n in alone.items() if n})
        answer = registry.batched_p2p_lookup(NAMESPACE, prompt, PER_CHUNK)
        assert {match.instance: match for match in answer} == expected
    everything = {key for keys in held.values() for key in keys}
    assert swept(registry).hashes == len(everything)


def run(prompt: list[bytes], held: set[bytes]) -> int:
    return next((at for at, key in enumerate(prompt) if key not in held), len(prompt))

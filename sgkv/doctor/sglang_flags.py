"""What in an SGLang server's arguments defeats the cache, or wastes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sgkv.config import Config, ConfigError, CpuTier, load, resolve
from sgkv.doctor.finding import Finding, note, ok, problem
from sgkv.doctor.sglang_arguments import SglangArguments
from sgkv.sglang.launch import DYNAMIC, LINKER, read_extra_config

TOPIC = "SGLang flags"
_EXTRA = "hicache_storage_backend_extra_config"
_LINKER_EXTRA = "unified_cache_external_linker_config"
_FLAG = "--hicache-storage-backend sgkv"
_USUAL_THRESHOLD = 256
"""Tokens (`prefetch_threshold` of SGLang 0.5.23): a shorter uncached part of a prompt is not looked up."""


def examine(arguments: SglangArguments) -> Iterator[Finding]:
    """Everything about a server that its arguments tell."""
    backend = arguments.text("hicache_storage_backend")
    linked = arguments.on("enable_unified_cache_external_linker")
    if linked and (backend or arguments.on("enable_hierarchical_cache")):
        yield problem(
            TOPIC,
            "the external linker and the hierarchical cache exclude each other",
            "leave out one of them: the linker needs no host memory, HiCache serves what is in it faster",
        )
    elif linked:
        yield from _linker(arguments)
    elif not backend:
        yield problem(TOPIC, "no storage backend is named: sgkv is not in use", f"add {_FLAG}")
    elif backend not in ("sgkv", "dynamic"):
        yield problem(
            TOPIC, f"the storage backend is SGLang's {backend!r}: sgkv is not in use", f"write {_FLAG}"
        )
    else:
        yield from _hicache(arguments, backend)
    yield from _whatever_backend(arguments)


def _hicache(arguments: SglangArguments, backend: str) -> Iterator[Finding]:
    extra = _settings(arguments, _EXTRA)
    if isinstance(extra, Finding):
        yield extra
        return
    if backend == "dynamic":
        foreign = list(_foreign(extra))
        yield from foreign
        if foreign:
            return
        yield from _dynamic(arguments, extra)
    config = _configuration(extra)
    if isinstance(config, Finding):
        yield config
    else:
        yield ok(TOPIC, f"the configuration is valid: {', '.join(tier.name for tier in config.tiers)}")
        yield from _page_size(arguments, config, fixed=backend == "sgkv" and not arguments.live)
        yield from _host_memory(arguments, config)
    yield from _policies(arguments, extra)


def _foreign(extra: Mapping[str, Any]) -> Iterator[Finding]:
    for name in ("module_path", "class_name"):
        if extra.get(name) != DYNAMIC[name]:
            yield problem(
                TOPIC,
                f"{name} is {extra.get(name)!r}: the dynamic backend is not sgkv",
                f'"{name}": "{DYNAMIC[name]}", or {_FLAG}',
            )


def _dynamic(arguments: SglangArguments, extra: Mapping[str, Any]) -> Iterator[Finding]:
    """What the one flag would have set."""
    if not arguments.on("enable_hierarchical_cache"):
        yield problem(
            TOPIC,
            "a storage backend without --enable-hierarchical-cache stores nothing",
            "add --enable-hierarchical-cache",
        )
    if not extra.get("interface_v1"):
        yield problem(
            TOPIC,
            "interface_v1 is not set: every page is copied twice more, one call a page",
            '"interface_v1": 1 in the extra config',
        )
    if not extra.get("hicache_storage_pass_prefix_keys"):
        yield problem(
            TOPIC,
            "prefix keys are not passed: pages are stored one by one, not in chunks of 256 tokens",
            '"hicache_storage_pass_prefix_keys": true in the extra config',
        )


def _linker(arguments: SglangArguments) -> Iterator[Finding]:
    extra = _settings(arguments, _LINKER_EXTRA)
    if isinstance(extra, Finding):
        yield extra
        return
    if arguments.text("unified_cache_external_linker_backend") != "dynamic":
        yield problem(
            TOPIC, "the linker is not sgkv's", "write --unified-cache-external-linker-backend dynamic"
        )
    for name, ours in LINKER.items():
        if extra.get(name) != ours:
            yield problem(
                TOPIC, f"{name} is {extra.get(name)!r}: the linker is not sgkv's", f'"{name}": "{ours}"'
            )
    config = _configuration(extra.get("linker_extra_config") or {})
    if isinstance(config, Finding):
        yield config
    else:
        yield from _page_size(arguments, config, fixed=False)


def _page_size(arguments: SglangArguments, config: Config, *, fixed: bool) -> Iterator[Finding]:
    """`fixed` says that the plugin chooses 64 where a page would be a token."""
    size = int(arguments.number("page_size") or 1)
    if size == 1 and not fixed:
        yield problem(
            TOPIC,
            "a page is one token: each is looked up by itself, which takes longer than computing it",
            "--page-size 64",
        )
    elif config.chunk_tokens % size and size < config.chunk_tokens:
        yield note(
            TOPIC,
            f"pages of {size} tokens do not divide a chunk of {config.chunk_tokens}: chunks are smaller",
            "--page-size 16, 32, 64, 128 or 256",
        )
    elif size not in (1, *range(16, 1025)):
        yield note(TOPIC, f"pages of {size} tokens are many objects for a prompt", "--page-size 64")


def _host_memory(arguments: SglangArguments, config: Config) -> Iterator[Finding]:
    mode = arguments.text("hicache_host_memory_mode", "cache")
    if mode == "buffer_only" and not any(isinstance(tier, CpuTier) for tier in config.tiers):
        yield note(
            TOPIC,
            "host memory is only a buffer, and the configuration has no cpu tier: every hit comes from a "
            "slower one",
            "add a cpu tier, which is the host cache then",
        )
    ratio = arguments.number("hicache_ratio")
    if mode == "cache" and ratio is not None and ratio <= 1 and not arguments.number("hicache_size"):
        yield note(
            TOPIC,
            f"--hicache-ratio {ratio:g} makes host memory no larger than the device's: it holds little that "
            "the device has not",
            "--hicache-ratio 2 or more",
        )


def _policies(arguments: SglangArguments, extra: Mapping[str, Any]) -> Iterator[Finding]:
    layout = arguments.text("hicache_mem_layout", "page_first")
    if layout == "layer_first":
        yield note(
            TOPIC,
            "with --hicache-mem-layout layer_first a page is as many pieces as there are layers",
            "--hicache-mem-layout page_first",
        )
    policy = arguments.text("hicache_write_policy", "write_through")
    if policy == "write_back":
        yield note(
            TOPIC,
            "--hicache-write-policy write_back stores a page only when the device evicts it: what a crash or "
            "another server could use is not there",
            "--hicache-write-policy write_through",
        )
    elif policy == "write_through_selective":
        yield note(TOPIC, "--hicache-write-policy write_through_selective stores a prefix at its second use")
    if arguments.text("hicache_storage_prefetch_policy", "timeout") == "best_effort":
        yield note(
            TOPIC,
            "--hicache-storage-prefetch-policy best_effort uses what has arrived when a request is admitted: "
            "on an idle server that is little",
            "--hicache-storage-prefetch-policy timeout",
        )
    threshold = extra.get("prefetch_threshold", _USUAL_THRESHOLD)
    if isinstance(threshold, int) and threshold > 2 * _USUAL_THRESHOLD:
        yield note(
            TOPIC,
            f"prefetch_threshold is {threshold}: prompts with fewer uncached tokens are never looked up",
            f'"prefetch_threshold": {_USUAL_THRESHOLD}',
        )


def _whatever_backend(arguments: SglangArguments) -> Iterator[Finding]:
    if arguments.on("disable_radix_cache"):
        yield problem(TOPIC, "--disable-radix-cache turns all reuse of prefixes off", "remove it")
    if arguments.on("enable_kv_cache_sharding"):
        yield problem(TOPIC, "--enable-kv-cache-sharding goes with no storage backend", "remove it")
    if arguments.text("load_format") == "dummy":
        yield note(
            TOPIC,
            "--load-format dummy makes weights up at each start: no other start can use what is stored",
        )
    if not arguments.on("enable_metrics"):
        yield note(
            TOPIC, "without --enable-metrics nothing of sgkv is seen at /metrics", "add --enable-metrics"
        )


def _settings(arguments: SglangArguments, name: str) -> dict[str, Any] | Finding:
    try:
        return read_extra_config(arguments.text(name) or None)
    except ValueError as error:
        return problem(TOPIC, str(error), "see docs/configuration.md")


def _configuration(extra: Mapping[str, Any]) -> Config | Finding:
    try:
        config = load(extra, origin="extra config").config
        resolve(config)
    except ConfigError as error:
        return problem(
            TOPIC, f"the configuration is refused: {error}", "sgkv config validate FILE shows more"
        )
    return config

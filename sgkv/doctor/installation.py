"""Which packages are installed where we run, and whether they go together."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sgkv import __version__
from sgkv.backends.mooncake.library import DISTRIBUTIONS as MOONCAKES
from sgkv.doctor.finding import Finding, note, ok, problem

TOPIC = "installation"
PLUGIN_GROUP = "sglang.srt.plugins"
PLUGIN = "sgkv"

TESTED = {
    "sglang": ("0.5.23",),
    "vllm": ("0.32.0", "0.33.0"),
    "triton": ("3.6.0",),
    **dict.fromkeys(MOONCAKES, ("0.3.13.post1",)),
}
"""Versions that the test suite runs against, or whose interface was read (vLLM 0.33); a package by name."""
NEEDED_BY = {"s3": ("boto3", "s3"), "valkey": ("valkey", "valkey")}
"""The package that a kind of tier needs, and the extra that installs it."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The facts; tests state their own."""

    python: tuple[int, int]
    versions: Mapping[str, str]
    """By the name of a distribution, for those that matter here."""
    plugins: frozenset[str]
    """Entry points of SGLang's plugin group."""
    allowed_plugins: str | None
    """SGLANG_PLUGINS, with which SGLang 0.5.23 loads only the plugins it names (`srt/plugins`)."""


def this_installation() -> Installation:
    """Of the running interpreter."""
    return Installation(
        python=sys.version_info[:2],
        versions=dict(_versions()),
        plugins=frozenset(point.name for point in importlib.metadata.entry_points(group=PLUGIN_GROUP)),
        allowed_plugins=os.environ.get("SGLANG_PLUGINS"),
    )


def examine(found: Installation, tier_types: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """`tier_types` are those of the configuration, whose packages must be there."""
    if found.python < (3, 11):
        yield problem(TOPIC, f"Python {_dotted(found.python)} is too old", "use Python 3.11 or newer")
    yield ok(TOPIC, f"sgkv {__version__} on Python {_dotted(found.python)}")
    yield from _engines(found)
    yield from _mooncakes(found)
    for kind in sorted(tier_types & NEEDED_BY.keys()):
        package, extra = NEEDED_BY[kind]
        if package not in found.versions:
            yield problem(
                TOPIC,
                f"the configuration has a {kind} tier, and {package} is not installed",
                f'pip install "sgkv[{extra}]"',
            )


def _engines(found: Installation) -> Iterator[Finding]:
    engines = [name for name in ("sglang", "vllm") if name in found.versions]
    if not engines:
        yield note(
            TOPIC,
            "neither SGLang nor vLLM is installed beside sgkv",
            "install sgkv into the environment that the engine runs in",
        )
    for name in engines:
        yield _version(name, found.versions[name])
    if "sglang" in engines:
        yield from _plugin(found)


def _version(name: str, version: str) -> Finding:
    tested = TESTED[name]
    if version in tested:
        return ok(TOPIC, f"{name} {version}")
    return note(
        TOPIC,
        f"{name} {version} was not tested with sgkv {__version__}; tested: {', '.join(tested)}",
        f"pip install {name}=={tested[0]}, or try it in shadow first",
    )


def _plugin(found: Installation) -> Iterator[Finding]:
    if PLUGIN not in found.plugins:
        yield problem(
            TOPIC,
            "SGLang does not see sgkv's plugin: --hicache-storage-backend sgkv is unknown to it, and "
            "updates of the weights go unnoticed",
            "install sgkv with pip into SGLang's own environment; a copied folder has no entry points",
        )
    elif found.allowed_plugins is not None and PLUGIN not in _names(found.allowed_plugins):
        yield problem(
            TOPIC,
            f"SGLANG_PLUGINS={found.allowed_plugins} leaves sgkv's plugin out",
            f"unset it, or add {PLUGIN} to it",
        )
    else:
        yield ok(TOPIC, "SGLang loads sgkv's plugin")


def _mooncakes(found: Installation) -> Iterator[Finding]:
    wheels = [name for name in MOONCAKES if name in found.versions]
    if len(wheels) > 1:
        yield problem(
            TOPIC,
            f"{', '.join(wheels)} are all installed, and overwrite each other",
            f"pip uninstall {' '.join(wheels)}, then install one",
        )
    for name in wheels[:1]:
        yield _version(name, found.versions[name])


def _versions() -> Iterator[tuple[str, str]]:
    packages = {*TESTED, *(package for package, _ in NEEDED_BY.values())}
    for name in packages:
        try:
            yield name, importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")}


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))

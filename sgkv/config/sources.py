"""Where settings come from: a file, the environment, and what an engine hands over.

Each source becomes a tree whose leaves remember their origin; trees are laid over each other, the
later one winning leaf by leaf. A list replaces a list; a mapping with numbers for keys, which is what
the environment makes, reaches into one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, ValuesView
from pathlib import Path
from typing import NamedTuple, TypeAlias

import yaml

from sgkv.config.errors import ConfigError, Problem

PREFIX = "SGKV__"
FILE_VARIABLE = "SGKV_CONFIG"

SGLANG_KEYS = frozenset(
    {
        "allocator",
        "backend_name",
        "class_name",
        "file_storage_path",
        "hicache_storage_pass_prefix_keys",
        "interface_v1",
        "module_path",
        "prefetch_threshold",
        "prefetch_timeout_base",
        "prefetch_timeout_per_ki_token",
        "tp_lcm_size",
    }
)
"""Keys of SGLang's own in `--hicache-storage-backend-extra-config` (SGLang 0.5.23:
`HybridCacheController.parse_storage_backend_extra_config`, the dynamic loader and the host allocator).
Some of them reach the backend, so they are no mistake there."""


_UNREADABLE = (yaml.YAMLError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What parsers raise over bad text. PyYAML's own constructors let some of these through, for values like
``!!int ""`` and ``!!timestamp x``; all of them recurse into nested brackets."""
_MAX_DEPTH, _MAX_VALUES = 32, 100_000
"""Far beyond what can be configured: short text may stand for endless values, by aliases of YAML."""


class Leaf(NamedTuple):
    """A value and where it was written."""

    value: object
    origin: str


Tree: TypeAlias = "Leaf | dict[str, Tree] | list[Tree]"


def read_file(path: Path) -> dict[str, object]:
    """The mapping in a YAML, TOML or JSON file, SGLang's keys included. Raises ConfigError."""
    try:
        content = _parse(path.suffix.lower(), path.read_bytes())
    except OSError as error:
        raise ConfigError([Problem("", f"cannot be read: {error.strerror}", str(path))]) from error
    except _UNREADABLE as error:
        raise ConfigError([Problem("", f"cannot be parsed: {error}", str(path))]) from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError([Problem("", "holds no mapping of names to values", str(path))])
    return content


def own_keys(options: Mapping[str, object]) -> dict[str, object]:
    """`options` without the keys that SGLang put there for itself."""
    return {key: value for key, value in options.items() if key not in SGLANG_KEYS}


def marked(value: object, origin: str) -> Tree:
    """`value` as a tree whose leaves come from `origin`. Raises ConfigError for one without bounds."""
    _require_bounded(value, origin)
    return _marked(value, origin)


def _marked(value: object, origin: str) -> Tree:
    if isinstance(value, Mapping):
        return {str(key): _marked(item, origin) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(item, origin) for item in value]
    return Leaf(value, origin)


def _require_bounded(value: object, origin: str) -> None:
    pending: list[tuple[object, int]] = [(value, 0)]
    seen = 0
    while pending:
        item, depth = pending.pop()
        children = item.values() if isinstance(item, Mapping) else item
        if isinstance(children, list | tuple | ValuesView):
            pending += [(child, depth + 1) for child in children]
        seen += 1
        if depth > _MAX_DEPTH or seen + len(pending) > _MAX_VALUES:
            raise ConfigError([Problem("", "is nested too deeply, or holds too many values", origin)])


def environment(environ: Mapping[str, str]) -> Iterator[Tree]:
    """One tree for each variable like ``SGKV__TIERS__0__CAPACITY``. Raises ConfigError."""
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        tree = marked(_from_text(environ[name], name), name)
        steps = name.removeprefix(PREFIX).lower().split("__")
        if not all(steps) or len(steps) > _MAX_DEPTH:
            raise ConfigError([Problem("", f"name a field after {PREFIX}, as in {PREFIX}TTL", name)])
        for step in reversed(steps):
            tree = {step: tree}
        yield tree


def laid_over(base: Tree | None, over: Tree) -> Tree:
    """`over` on top of `base`. Neither is changed."""
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: laid_over(base.get(key), value) for key, value in over.items()}
    if isinstance(base, list) and isinstance(over, dict) and over and all(map(_is_place, over)):
        items = list(base)
        for key in sorted(over, key=int):
            _put(items, key, over[key])
        return items
    return over


def _is_place(key: str) -> bool:
    """Whether it can number an item of a list; Python reads no integers of thousands of digits."""
    return key.isdecimal() and len(key) < 10


def split(tree: Tree, path: str = "") -> tuple[object, dict[str, str]]:
    """The plain values, and the origin of each leaf by its path."""
    if isinstance(tree, Leaf):
        return tree.value, {path: tree.origin}
    children = enumerate(tree) if isinstance(tree, list) else tree.items()
    parts = [(key, *split(child, f"{path}.{key}" if path else str(key))) for key, child in children]
    origins = {leaf: origin for _, _, below in parts for leaf, origin in below.items()}
    if isinstance(tree, list):
        return [value for _, value, _ in parts], origins
    return {key: value for key, value, _ in parts}, origins


def _parse(suffix: str, raw: bytes) -> object:
    if suffix == ".json":
        return json.loads(raw)
    if suffix == ".toml":
        return tomllib.loads(raw.decode())
    if suffix in (".yaml", ".yml"):
        return yaml.safe_load(raw)
    raise ValueError(f"{suffix or 'no ending'} tells no format: name the file .yaml, .toml or .json")


def _from_text(text: str, name: str) -> object:
    if text == "null":
        return None
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem("", f"is not valid JSON: {error}", name)]) from error


def _put(items: list[Tree], key: str, value: Tree) -> None:
    """Lay `value` over item number `key`; one past the end appends."""
    index = int(key)
    if index > len(items):
        _, origins = split(value)
        message = f"{key} is past the end of a list of {len(items)}: {len(items)} would append"
        raise ConfigError([Problem("", message, next(iter(origins.values()), ""))])
    items[index : index + 1] = [laid_over(items[index] if index < len(items) else None, value)]

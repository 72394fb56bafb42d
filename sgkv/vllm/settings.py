"""sgkv's configuration as it stands in a tier's entry of vLLM's ``secondary_tiers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sgkv.config import Loaded
from sgkv.config.loading import DEFAULT

_VLLMS = ("locality", "backpressure")
"""Keys of the entry that are vLLM's own."""


def settings(load: Callable[..., Loaded], options: Mapping[str, Any]) -> Loaded:
    """The configuration of `options`, over the environment and the file they name.

    vLLM's host memory is the first tier already: where nobody names tiers there is only the disk tier.
    Raises ConfigError.
    """
    own = {key: value for key, value in options.items() if key not in _VLLMS}
    loaded = load(own, origin="the tier's entry")
    if all(loaded.origin(path) == DEFAULT for path in loaded.origins if path.startswith("tiers.")):
        return load({**own, "tiers": [{"type": "disk"}]}, origin="vLLM's default")
    return loaded

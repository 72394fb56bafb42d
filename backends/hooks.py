"""The callbacks that ride along with a batch item, with their failures turned into answers."""

from __future__ import annotations

import logging

from sgkv.backends.base import GetItem, PutItem

log = logging.getLogger(__name__)
_said: set[tuple[str, type[Exception]]] = set()


def prepared(item: PutItem) -> bool:
    """Run `item.prepare`; False when it raised, which is `Status.ERROR` by contract."""
    if item.prepare is None:
        return True
    try:
        item.prepare()
    except Exception as error:  # noqa: BLE001 - the contract names any exception of the callback
        _say("preparing", item.key, error)
        return False
    return True


def checked(item: GetItem) -> bool:
    """Run `item.check`; False when it refused or raised, which is `Status.CORRUPT` by contract."""
    if item.check is None:
        return True
    try:
        return item.check()
    except Exception as error:  # noqa: BLE001 - the contract names any exception of the callback
        _say("checking", item.key, error)
        return False


def _say(what: str, key: str, error: Exception) -> None:
    """Once for each type: what fails for one blob fails for the next thousand."""
    if (what, type(error)) not in _said:
        _said.add((what, type(error)))
        log.error("%s %s failed (said once)", what, key, exc_info=error)

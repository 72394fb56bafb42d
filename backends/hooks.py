"""The callbacks that ride along with a batch item, with their failures turned into answers."""

from __future__ import annotations

import logging

from sgkv.backends.base import GetItem, PutItem

log = logging.getLogger(__name__)


def prepared(item: PutItem) -> bool:
    """Run `item.prepare`; False when it raised, which is `Status.ERROR` by contract."""
    if item.prepare is None:
        return True
    try:
        item.prepare()
    except Exception:  # the contract names any exception of the callback
        log.exception("preparing %s failed", item.key)
        return False
    return True


def checked(item: GetItem) -> bool:
    """Run `item.check`; False when it refused or raised, which is `Status.CORRUPT` by contract."""
    if item.check is None:
        return True
    try:
        return item.check()
    except Exception:  # the contract names any exception of the callback
        log.exception("checking %s failed", item.key)
        return False

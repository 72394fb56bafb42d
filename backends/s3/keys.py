"""What requests are signed with."""

from __future__ import annotations

from typing import Any, Protocol

from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError

from sgkv.backends.deadline import Deadline
from sgkv.backends.s3.replies import Locked


class SigningKeys(Protocol):
    """Keys that are valid now. Any thread."""

    session: bool
    """Whether they are of a session of a directory bucket."""

    def current(self, deadline: Deadline | None) -> ReadOnlyCredentials:
        """Keys to sign the next request with. Raises Locked, or Abandoned when waiting takes too long."""

    def reject(self, keys: ReadOnlyCredentials) -> bool:
        """The server refused these; True when asking again may give others."""

    def retried(self, *, refused: bool) -> None:
        """What came of a request that was made again with other keys."""

    def close(self) -> None:
        """End what runs in the background."""


class ChainKeys:
    """boto3's chain: arguments, environment, files, roles; refreshed by botocore itself."""

    session = False

    def __init__(self, session: Any) -> None:
        self._session = session

    def current(self, deadline: Deadline | None) -> ReadOnlyCredentials:
        try:
            found = self._session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except (BotoCoreError, ClientError, RuntimeError) as error:  # the last where new ones are too old
            raise Locked(f"credentials: {error}") from error
        if frozen is None:
            raise Locked("no credentials: set access_key and secret_key, or what boto3 reads")
        return frozen

    def reject(self, keys: ReadOnlyCredentials) -> bool:
        return False

    def retried(self, *, refused: bool) -> None:
        """There are no others."""

    def close(self) -> None:
        """Nothing runs."""

"""The controller from Python."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter

from sgkv.control.models import (
    ClearWish,
    CompressWish,
    InstanceView,
    Lookup,
    LookupView,
    MoveWish,
    NamespaceView,
    OperationView,
    PinView,
    PinWish,
    PrefetchWish,
    PrefixView,
    Wish,
)

View = TypeVar("View", bound=BaseModel)


class ControlError(Exception):
    """The controller refuses, or none answers; the text is what it says."""

    def __init__(self, status: int, detail: str) -> None:
        """`status` is HTTP's, 0 where nobody answered."""
        super().__init__(detail)
        self.status = status


class ControlClient:
    """One token's view. Any thread. Every method raises ControlError."""

    def __init__(
        self, url: str, token: str, *, timeout: float = 10.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        """`timeout` in seconds, for each step of a request."""
        headers = {"authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)

    def lookup(self, wish: Lookup) -> LookupView:
        return self._one(LookupView, "POST", "lookup", wish)

    def instances(self) -> list[InstanceView]:
        return self._many(InstanceView, "instances")

    def namespaces(self) -> list[NamespaceView]:
        return self._many(NamespaceView, "namespaces")

    def prefixes(self) -> list[PrefixView]:
        """Those found most often, of what was looked up lately."""
        return self._many(PrefixView, "prefixes")

    def pins(self) -> list[PinView]:
        return self._many(PinView, "pins")

    def operations(self) -> list[OperationView]:
        """The latest first."""
        return self._many(OperationView, "operations")

    def operation(self, id_: str) -> OperationView:
        return self._one(OperationView, "GET", f"operations/{id_}")

    def cancel(self, id_: str) -> OperationView:
        return self._one(OperationView, "POST", f"operations/{id_}/cancel")

    def pin(self, wish: PinWish) -> PinView:
        return self._one(PinView, "POST", "pins", wish)

    def unpin(self, id_: str) -> OperationView:
        return self._one(OperationView, "DELETE", f"pins/{id_}")

    def prefetch(self, wish: PrefetchWish, key: str = "") -> OperationView:
        """With a `key` of the caller's, to ask twice is to ask once; so for the others."""
        return self._one(OperationView, "POST", "prefetch", wish, key)

    def move(self, wish: MoveWish, key: str = "") -> OperationView:
        return self._one(OperationView, "POST", "move", wish, key)

    def compress(self, wish: CompressWish, key: str = "") -> OperationView:
        return self._one(OperationView, "POST", "compress", wish, key)

    def clear(self, wish: ClearWish, key: str = "") -> OperationView:
        return self._one(OperationView, "POST", "clear", wish, key)

    def drain(self, instance: str, key: str = "") -> OperationView:
        return self._one(OperationView, "POST", f"instances/{instance}/drain", None, key)

    def undrain(self, instance: str) -> None:
        self._ask("DELETE", f"instances/{instance}/drain")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def _one(self, view: type[View], method: str, path: str, wish: Wish | None = None, key: str = "") -> View:
        return view.model_validate(self._ask(method, path, wish, key))

    def _many(self, view: type[View], path: str) -> list[View]:
        return TypeAdapter(list[view]).validate_python(self._ask("GET", path))  # type: ignore[valid-type]

    def _ask(self, method: str, path: str, wish: Wish | None = None, key: str = "") -> Any:
        json = None if wish is None else wish.model_dump(mode="json")
        headers = {"idempotency-key": key} if key else {}
        try:
            answer = self._http.request(method, f"/v1/{path}", json=json, headers=headers)
        except httpx.HTTPError as error:
            raise ControlError(0, f"no controller answers at {self._http.base_url}: {error}") from error
        if answer.is_error:
            raise ControlError(answer.status_code, _detail(answer))
        return answer.json() if answer.content else None


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}"

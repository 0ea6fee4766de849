"""Fields of the agent's JSON objects, taken with their kind checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nnapi_prof.errors import SerializationError

T = TypeVar("T")


class Fields:
    """A JSON object of the agent's; ``where`` names it in errors (SerializationError)."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise SerializationError(f"the agent's {where}: an object wanted, {data!r} found")
        self._data = data
        self._where = where

    def _take(self, name: str, kind: type[T], default: Any = ...) -> T:
        if name not in self._data and default is not ...:
            return default  # type: ignore[no-any-return]  # the caller's own default
        try:
            value = self._data[name]
        except KeyError:
            raise SerializationError(f"the agent's {self._where} lacks {name!r}") from None
        return self._of_kind(name, value, kind)

    def _of_kind(self, name: str, value: Any, kind: type[T]) -> T:
        # bool is an int to isinstance, and no int in JSON.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise SerializationError(
                f"the agent's {self._where}: {name} is {value!r}, {kind.__name__} wanted"
            )
        return value

    def text(self, name: str) -> str:
        return self._take(name, str)

    def flag(self, name: str) -> bool:
        return self._take(name, bool)

    def number(self, name: str) -> int:
        return self._take(name, int)

    def optional(self, name: str, kind: type[T]) -> T | None:
        """A field that may be null or absent."""
        value = self._data.get(name)
        return None if value is None else self._of_kind(name, value, kind)

    def many(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """A list, empty where absent or null."""
        found = self.optional(name, list) or []
        return tuple(self._of_kind(f"{name}[{i}]", v, kind) for i, v in enumerate(found))

    def numbers_or_null(self, name: str) -> tuple[int | None, ...]:
        found = self.optional(name, list) or []
        return tuple(
            None if v is None else self._of_kind(f"{name}[{i}]", v, int)
            for i, v in enumerate(found)
        )

    def before_after(self, name: str) -> tuple[int | None, int | None]:
        found = self.numbers_or_null(name)
        if len(found) not in (0, 2):
            raise SerializationError(
                f"the agent's {self._where}: {name} has {len(found)} values, 2 wanted"
            )
        return (found[0], found[1]) if found else (None, None)

    def objects(self, name: str, read: Callable[[Fields], T]) -> tuple[T, ...]:
        found = self.optional(name, list) or []
        return tuple(read(Fields(v, f"{self._where}.{name}[{i}]")) for i, v in enumerate(found))

    def inner(self, name: str) -> Fields:
        return Fields(self._take(name, dict), f"{self._where}.{name}")

    def optional_inner(self, name: str) -> Fields | None:
        """An object that may be null or absent; a word there is passed over."""
        found = self._data.get(name)
        return None if found is None or isinstance(found, str) else self.inner(name)

    def lists_of_texts(self, name: str) -> dict[str, tuple[str, ...]]:
        found = self.optional(name, dict) or {}
        inner = Fields(found, f"{self._where}.{name}")
        return {str(key): inner.many(str(key), str) for key in found}

    def texts(self, name: str) -> dict[str, str]:
        inner = self._take(name, dict)
        return {str(k): self._of_kind(f"{name}.{k}", v, str) for k, v in inner.items()}

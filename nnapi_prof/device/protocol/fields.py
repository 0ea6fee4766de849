"""Fields of the agent's JSON objects, taken with their kind, range and length checked.

What a phone says is data of a stranger: its numbers must be possible, and control characters in its
words, which a terminal would obey, are made visible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from nnapi_prof.errors import SerializationError, escape_untrusted

T = TypeVar("T")

LONGEST_TEXT = 2000
"""Characters of a message or name; what is longer is cut."""
MOST_VALUES = 1_000_000
"""Values of a list."""
MAX_COUNT = (1 << 63) - 1
"""Numbers that are counted, of bytes too: what a column of a database holds."""
MAX_INT32 = (1 << 31) - 1
MAX_NS = 10**16
"""Nanoseconds: 116 days, twice the longest watchdog."""
MAX_KHZ = 100_000_000
HEAT_MC = (-273_150, 1_000_000)
"""Thousandths of a degree Celsius."""


class Fields:
    """A JSON object of the agent's; ``where`` names it in errors (SerializationError)."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise SerializationError(f"the agent's {where}: an object wanted, {_shown(data)} found")
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
                f"the agent's {self._where}: {name} is {_shown(value)}, {kind.__name__} wanted"
            )
        if isinstance(value, str):
            return escape_untrusted(value, LONGEST_TEXT)  # type: ignore[return-value]  # T is str
        if isinstance(value, list) and len(value) > MOST_VALUES:
            raise SerializationError(
                f"the agent's {self._where}: {name} has {len(value)} values, {MOST_VALUES} at most "
                "are read"
            )
        return value

    def _in_range(self, name: str, value: int, low: int, high: int) -> int:
        if not low <= value <= high:
            raise SerializationError(
                f"the agent's {self._where}: {name} is {_shown(value)}, {low} to {high} wanted"
            )
        return value

    def text(self, name: str) -> str:
        return self._take(name, str)

    def flag(self, name: str) -> bool:
        return self._take(name, bool)

    def number(self, name: str, high: int = MAX_COUNT) -> int:
        """A number that counts something: 0 or more."""
        return self._in_range(name, self._take(name, int), 0, high)

    def optional_number(self, name: str, high: int = MAX_COUNT) -> int | None:
        """Returns :meth:`number` of a field that may be null or absent."""
        value = self.optional(name, int)
        return None if value is None else self._in_range(name, value, 0, high)

    def times(self, name: str) -> tuple[int, ...]:
        """A list of ns, empty where absent or null."""
        values = self.many(name, int)
        for index, value in enumerate(values):
            self._in_range(f"{name}[{index}]", value, 0, MAX_NS)
        return values

    def optional(self, name: str, kind: type[T]) -> T | None:
        """A field that may be null or absent."""
        value = self._data.get(name)
        return None if value is None else self._of_kind(name, value, kind)

    def many(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """A list, empty where absent or null."""
        values = self.optional(name, list) or []
        return tuple(self._of_kind(f"{name}[{i}]", v, kind) for i, v in enumerate(values))

    def numbers_or_null(self, name: str) -> tuple[int | None, ...]:
        values = self.optional(name, list) or []
        return tuple(
            None if v is None else self._of_kind(f"{name}[{i}]", v, int)
            for i, v in enumerate(values)
        )

    def readings(self, name: str, low: int, high: int) -> tuple[int | None, ...]:
        """A list of readings of sensors; one beyond its range, as broken ones tell, is none."""
        return tuple(
            None if value is None or not low <= value <= high else value
            for value in self.numbers_or_null(name)
        )

    def before_after(self, name: str, low: int, high: int) -> tuple[int | None, int | None]:
        """Two readings of a sensor; one beyond its range, as broken ones tell, is none."""
        pair = self.readings(name, low, high)
        if len(pair) not in (0, 2):
            raise SerializationError(
                f"the agent's {self._where}: {name} has {len(pair)} values, 2 wanted"
            )
        return (pair[0], pair[1]) if pair else (None, None)

    def reading(self, name: str, low: int, high: int) -> int | None:
        """A reading of a sensor; one beyond its range, as broken ones tell, is none."""
        value = self.optional(name, int)
        return None if value is None or not low <= value <= high else value

    def objects(self, name: str, read: Callable[[Fields], T]) -> tuple[T, ...]:
        values = self.optional(name, list) or []
        return tuple(read(Fields(v, f"{self._where}.{name}[{i}]")) for i, v in enumerate(values))

    def inner(self, name: str) -> Fields:
        return Fields(self._take(name, dict), f"{self._where}.{name}")

    def optional_inner(self, name: str) -> Fields | None:
        """An object that may be null or absent; a word there is passed over."""
        value = self._data.get(name)
        return None if value is None or isinstance(value, str) else self.inner(name)

    def lists_of_texts(self, name: str) -> dict[str, tuple[str, ...]]:
        lists = self.optional(name, dict) or {}
        inner = Fields(lists, f"{self._where}.{name}")
        return {escape_untrusted(str(key), 100): inner.many(str(key), str) for key in lists}

    def texts(self, name: str) -> dict[str, str]:
        inner = self._take(name, dict)
        return {
            escape_untrusted(str(k), 100): self._of_kind(
                f"{name}.{escape_untrusted(str(k), 100)}", v, str
            )
            for k, v in inner.items()
        }


def _shown(value: object) -> str:
    """A value for a message. Python refuses to write very long numbers."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return escape_untrusted(repr(value), 100)

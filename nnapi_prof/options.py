"""Options, declared once as fields of frozen dataclasses, each with its help and its range.

The field has the type and the default, :func:`option` the rest. :func:`validate` checks the fields
for callers from Python, :mod:`nnapi_prof.cli.options` makes command-line options of them, and the
documentation lists them.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from numbers import Real
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from nnapi_prof.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_KEY = "option"
"""Key of an :class:`Option` in the metadata of its field."""


@dataclass(frozen=True, slots=True)
class Option:
    """The properties of an option beyond its field's type and default."""

    help: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    flag: str | None = None
    """Its name on the command line, or several as ``-k, --plans``; None for the field's name."""
    metavar: str | None = None
    """The placeholder of its value in ``--help``; None for the type's usual one."""

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The minimum and the maximum value."""
        return self.least, self.most

    def range_words(self) -> str:
        """Describe the values that are allowed, for the documentation."""
        words = list(self.choices)
        if self.least is not None:
            most = "" if self.most is None else f" to {self.most:g}"
            words.append(f"{self.least:g}{most}" if most else f"at least {self.least:g}")
        return ", ".join(words)


def option(
    help: str,
    least: float | None = None,
    most: float | None = None,
    *,
    choices: Iterable[str] = (),
    flag: str | None = None,
    metavar: str | None = None,
) -> dict[str, Option]:
    """Make the metadata of a field that is an option, as ``field(metadata=option(...))``."""
    return {_KEY: Option(help, least, most, tuple(map(str, choices)), flag, metavar)}


def options_of(cls: type[DataclassInstance]) -> dict[str, Option]:
    """Return the options that a dataclass declares, by the names of their fields."""
    return {each.name: each.metadata[_KEY] for each in fields(cls) if _KEY in each.metadata}


def default_of(cls: type[DataclassInstance], name: str) -> Any:
    """Return the default of a field, as text where that is a name; None where it has none."""
    default = next(each.default for each in fields(cls) if each.name == name)
    if default is MISSING:
        return None
    return str(default) if isinstance(default, str) else default


def flag_of(cls: type[DataclassInstance], name: str) -> str:
    """Return the name of an option on the command line."""
    return options_of(cls)[name].flag or f"--{name.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of an option's values."""

    scalar: type
    """One of bool, int, float and str."""
    is_sequence: bool
    """Whether the option takes several values."""
    takes_mapping: bool
    takes_none: bool


@functools.cache
def value_types(cls: type[DataclassInstance]) -> dict[str, ValueType]:
    """Return the types of a dataclass' options, by the names of their fields."""
    hints = typing.get_type_hints(cls)
    return {name: _value_type(hints[name]) for name in options_of(cls)}


def _value_type(hint: Any) -> ValueType:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    alternatives = typing.get_args(hint) if is_union else (hint,)
    origins = {typing.get_origin(each) for each in alternatives}
    is_sequence = not origins.isdisjoint({tuple, Sequence})
    elements = [arg for each in alternatives for arg in typing.get_args(each)[:1] if is_sequence]
    scalars = [each for each in (bool, int, float, str) if each in (*elements, *alternatives)]
    return ValueType(
        scalar=scalars[0],
        is_sequence=is_sequence,
        takes_mapping=Mapping in origins,
        takes_none=type(None) in alternatives,
    )


def validate(options: DataclassInstance) -> None:
    """Check the fields of an instance and turn sequences into tuples: a ``__post_init__``.

    Raises UsageError for a value that its option does not allow.
    """
    for name, declared in options_of(type(options)).items():
        value, value_type = getattr(options, name), value_types(type(options))[name]
        if value is None:
            if not value_type.takes_none:
                raise UsageError(f"{name} is None: a value is required")
            continue
        if value_type.is_sequence and value_type.scalar is not str:
            value = tuple(value) if isinstance(value, Iterable) else (value,)
            object.__setattr__(options, name, value)
            if declared.least is not None:
                for each in value:
                    number(name, each, declared.least, declared.most)
        elif value_type.is_sequence:
            texts = placements if value_type.takes_mapping else names
            value = texts(name, value)
            object.__setattr__(options, name, value)
            for text in value if declared.choices else ():
                one_of(name, text, declared.choices)
        elif value_type.scalar is bool:
            one_of(name, value, (False, True))
        elif declared.choices and (value_type.scalar is str or isinstance(value, str)):
            one_of(name, value, declared.choices)
        elif declared.least is not None and not (
            value_type.takes_mapping and isinstance(value, Mapping)
        ):
            number(name, value, declared.least, declared.most)


def checked(name: str, options: T | None, cls: type[T]) -> T:
    """Return an options object, for None one with all defaults. Raises UsageError where it is of
    another class."""
    if options is not None and not isinstance(options, cls):
        raise UsageError(f"{name} are {options!r}", f"give {cls.__name__}(...) of nnapi_prof")
    return cls() if options is None else options


def number(name: str, value: object, least: float, most: float | None = None) -> None:
    """Raise UsageError unless ``value`` is a number from ``least`` to ``most``, or None."""
    if value is None:
        return
    limits = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not least <= float(value) <= (float("inf") if most is None else most):  # type: ignore[arg-type]
        raise UsageError(f"{name} is {value!r}: a number {limits} is required")


def one_of(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise UsageError unless ``value`` is one of ``choices``, or None."""
    if value is not None and value not in choices:
        raise UsageError(f"{name} is {value!r}: one of {', '.join(map(str, choices))} is required")


def names(name: str, value: object) -> tuple[str, ...]:
    """Return the texts of an iterable; a text alone is one. Raises UsageError for anything else."""
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise UsageError(f"{name} is {value!r}: texts are required")
    texts = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name} is {value!r}: texts are required")
    return texts


def placements(name: str, value: object) -> tuple[str, ...]:
    """Return patterns that may name a target, as ``"softmax*=cpu"``, given as texts (see
    :func:`names`) or as a mapping from units to targets. Raises UsageError for anything else."""
    if not isinstance(value, Mapping):
        return names(name, value)
    if not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise UsageError(f"{name} is {value!r}: units and targets as text are required")
    return tuple(f"{unit}={where}" for unit, where in value.items())


def into(parameter: str, cls: type[DataclassInstance]) -> dict[str, str]:
    """Return for :func:`moved` the replacements of keywords that became fields of a dataclass."""
    return {name: f"{parameter}={cls.__name__}({name}=...)" for name in options_of(cls)}


def moved(**replacements: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that refuses keywords of an earlier version and says what replaces them.

    An entry stays for one minor version, like those of :data:`nnapi_prof.cli.command.REMOVED`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def refusing(*args: P.args, **keywords: P.kwargs) -> R:
            for name in keywords:
                if name in replacements:
                    raise UsageError(
                        f"{function.__name__}() no longer takes the keyword {name}",
                        f"write {replacements[name]}",
                    )
            return function(*args, **keywords)

        return refusing

    return decorate

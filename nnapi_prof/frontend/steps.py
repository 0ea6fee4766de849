"""What the front end hands to the Concretiser: values that move, and calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from nnapi_prof.errors import FrontendError


class DataDependent(FrontendError):
    """A shape, a number or a branch depends on the values of a tensor."""


@dataclass(eq=False)
class Moving:
    """A value that depends on the inputs: the node that makes it, and a stand-in without data.

    Writing to the value in place makes ``node`` the node of the new value.
    """

    node: fx.Node
    fake: Tensor

    @property
    def memory(self) -> Any:
        """The stand-in's storage: views of one tensor have the same."""
        return self.fake.untyped_storage()._cdata

    @property
    def place(self) -> tuple[Any, ...]:
        """Where in its storage the value lies."""
        return (self.fake.shape, self.fake.stride(), self.fake.storage_offset())


@dataclass(frozen=True)
class Step:
    """One call to carry out. ``where`` is its source line or node, ``hint`` a name for its node."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    where: str
    hint: str

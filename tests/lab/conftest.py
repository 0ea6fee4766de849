"""The server that a lab's tests share with those of the cost store."""

from tests.costs.conftest import postgres

__all__ = ["postgres"]

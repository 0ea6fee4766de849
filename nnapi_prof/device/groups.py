"""Which actions of a request may run interleaved: as many as the device's memory holds at once."""

from __future__ import annotations

from collections.abc import Hashable

from nnapi_prof.device.action import MAX_GROUP

MAX_GROUP_BYTES = 512 << 20
"""Weights that the processes of one group hold on the device, copies included."""
WEIGHT_COPIES = 3
"""The blob, what an engine packs of it, what a driver keeps."""


class Groups:
    """Numbers the groups of a request: actions that follow each other under the same key share
    one, or have several where their weights would be too much at once."""

    def __init__(self) -> None:
        self._number = 0
        self._key: Hashable = None
        self._members = self._weight = 0

    def number(self, key: Hashable, weight_bytes: int) -> int:
        """The group of the next action, whose models have so many bytes of weights."""
        self._members += 1
        self._weight += weight_bytes * WEIGHT_COPIES
        full = self._members > MAX_GROUP or self._weight > MAX_GROUP_BYTES
        if self._number == 0 or key != self._key or full:
            self._number += 1
            self._key, self._members = key, 1
            self._weight = weight_bytes * WEIGHT_COPIES
        return self._number

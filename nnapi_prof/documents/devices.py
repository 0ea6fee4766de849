"""What ``nnapi-prof devices --json`` prints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nnapi_prof.documents.registry import TEXT, TRUTH, Document, array, described, document, obj

if TYPE_CHECKING:
    from nnapi_prof.device.find import ListedDevice


@document(
    "devices",
    1,
    "The devices within reach",
    devices=array(
        obj(
            serial=described(TEXT, "what --device takes"),
            kind=described(TEXT, "how it is reached"),
            state=TEXT,
            description=TEXT,
            simulated=TRUTH,
        )
    ),
)
def of_devices(rows: Iterable[ListedDevice]) -> Document:
    devices = [
        {**dataclasses.asdict(row), "simulated": row.serial.startswith("sim:")} for row in rows
    ]
    return {"devices": devices}

"""How much processors slow each other down, as documents have it."""

from __future__ import annotations

from nnapi_prof.documents.schema import (
    COUNT,
    COUNT_OR_NULL,
    NUMBER,
    TEXT,
    array,
    choice,
    described,
    nullable,
    obj,
)

_INTERVAL = obj(value=NUMBER, low=NUMBER, high=NUMBER)
_BASIS = choice("measured", "partly measured", "assumed", "given")
_PAIR = obj(
    lane=described(TEXT, "cpu or an accelerator"),
    beside=described(TEXT, "the one that is busy meanwhile"),
    basis=_BASIS,
    factor=described(_INTERVAL, "how many times as long the lane takes; low and high hold 95 %"),
    n_units=described(COUNT, "different units that it was measured with"),
    cpu_share=described(nullable(_INTERVAL), "CPU time of the agent by the time of a run alone"),
    wait_ns=described(nullable(_INTERVAL), "what starting and waiting takes more than one call"),
    later=described(nullable(_INTERVAL), "a run's time at the end of a long measurement by before"),
    cpu_khz=described(
        nullable(array(COUNT_OR_NULL)), "the CPU's clock before and after a long measurement"
    ),
)
CONTENTION = described(
    obj(basis=_BASIS, pairs=array(_PAIR)),
    "how many times as long a processor takes while another one is busy",
)

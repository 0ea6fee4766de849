"""The costs of a model on several phones of one cost table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnapi_prof.api.cost_tables import read_costs
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.events import Listener, Progress
from nnapi_prof.api.model import Model
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.devices import Measured, find, measured
from nnapi_prof.errors import CostError, UsageError, option_name

EVERY = "*"


def costs_of_phones(
    model: Model,
    store: CostStore,
    patterns: Sequence[str],
    conditions: Mapping[str, Any],
    listener: Listener,
) -> dict[str, Costs]:
    """The costs on each phone that a pattern names, by names of which no two are alike.

    Patterns are those of :func:`nnapi_prof.costs.store.devices.find`; none stands for all. Phones
    on which the model was not measured under these ``conditions`` are left out with a note.

    Raises UsageError where a pattern fits no phone, CostError where none is left.
    """
    there = measured(store)
    phones = {
        each.fingerprint: each for words in patterns or [EVERY] for each in find(there, words)
    }
    costs: dict[str, Costs] = {}
    missing: list[str] = []
    reason = ""
    for done, phone in enumerate(phones.values()):
        listener.progress(Progress("reading costs", done, len(phones), phone.name))
        try:
            one = read_costs(model, store, phone.fingerprint, **conditions)
        except CostError as error:
            missing.append(phone.name)
            reason = reason or str(error)
            continue
        costs[_phone_name(phone, costs)] = one
    if not costs:
        raise CostError(
            f"the model was measured on none of {len(phones)} phones; on {missing[0]}: {reason}"
        )
    if missing:
        shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        listener.note(f"left out, for the model was not measured there: {shown}")
    return costs


def _phone_name(phone: Measured, others: Mapping[str, Costs]) -> str:
    """Its name, with its fingerprint where another is called the same."""
    return f"{phone.name} {phone.fingerprint}" if phone.name in others else phone.name


def weights_of(costs: Mapping[str, Costs], stated: Sequence[str]) -> list[float] | None:
    """The weight of each phone from ``PATTERN=NUMBER``; 1 of those that none is for. None where
    none is stated. Raises UsageError."""
    if not stated:
        return None
    weights = dict.fromkeys(costs, 1.0)
    for text in stated:
        words, _, number = text.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not words or not 0 <= weight < math.inf:
            raise UsageError(
                f"{option_name('weight')} {text!r}: a pattern of phones and a number of at least 0"
                " are wanted, as `pixel*=3`"
            )
        listed = [
            Measured(each.fingerprint or "", name, each.simulated, 0, {}, {}, (), "", "")
            for name, each in costs.items()
        ]
        for each in find(listed, words):
            weights[each.name] = weight
    return list(weights.values())

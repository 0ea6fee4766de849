"""Costs that were measured: now, or before."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnapi_prof.api import arguments
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.estimating import filled_costs
from nnapi_prof.api.listener import Listener, Progress
from nnapi_prof.api.logged import to_log
from nnapi_prof.api.model import Model, loaded
from nnapi_prof.api.steps import reached
from nnapi_prof.api.steps_profile import profile_on
from nnapi_prof.costs import default_location
from nnapi_prof.costs.conditions import Conditions, Mode, Precision, parse_cpus
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.devices import find_one, measured
from nnapi_prof.costs.store.selection import Selection, instant
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile.options import ProfileOptions


def profile(
    model: Model | str | os.PathLike[str],
    device: str | None = None,
    *,
    costs: str | os.PathLike[str] | None = None,
    threads: int = 1,
    cpus: str = "big",
    mode: str = "sync",
    relaxed: bool = False,
    float16: bool = False,
    accelerators: Sequence[str] | None = None,
    refine: bool = True,
    every_preference: bool = False,
    fresh: bool = False,
    runs: int | None = None,
    rounds: int = 5,
    budget_ms: float = 60.0,
    warmup_ms: float = 30.0,
    cooldown_s: float = 60.0,
    memory_mb: int | None = None,
    timeout_s: float = 60.0,
    progress: Callable[[Progress], None] | None = None,
) -> Costs:
    """Measures a model's units and regions on a device, as ``nnapi-prof profile`` does.

    ``device`` is a serial, ``HOST:PORT``, ``local`` or ``sim:NAME``; None the only phone, else a
    simulated one. ``costs`` is the cost table, an SQLite file or a PostgreSQL URL; None
    ``$NNAPI_PROF_COSTS``, else a file in the user's data folder. What it has for this device and
    these conditions is not measured again, unless ``fresh``.

    The conditions: ``threads`` of the CPU engine; ``cpus`` is ``big``, ``all`` or a mask in hex;
    ``mode`` is ``sync``, ``burst`` or ``async``; ``relaxed`` lets NNAPI compute float32 as float16,
    ``float16`` gives it models in float16.

    ``accelerators`` limits to those names; ``refine`` measures the regions of the plan whole until
    it stands; ``every_preference`` measures every unit under all three. ``runs`` are recorded of
    each region at most, in ``rounds`` turns of the alternatives, for ``budget_ms`` ms, after up to
    ``warmup_ms`` ms. A hot phone is waited for ``cooldown_s`` s; ``memory_mb`` limits the process
    of a measurement, ``timeout_s`` (s) each of its steps. ``progress`` is called with a
    :class:`nnapi_prof.Progress` after each.

    Raises NnapiProfError: DeviceError where the device fails (what was measured is kept),
    UsageError, CostError. Ctrl-C raises KeyboardInterrupt; what was measured is kept, too.
    """
    arguments.repeats(runs, cooldown_s, memory_mb)
    arguments.number("rounds", rounds, 1, arguments.MOST_ROUNDS)
    arguments.number("warmup_ms", warmup_ms, 0)
    arguments.number("budget_ms", budget_ms, 0)
    arguments.number("timeout_s", timeout_s, 0.001)
    named = None if accelerators is None else arguments.names("accelerators", accelerators)
    options = ProfileOptions(
        warmup_ms=warmup_ms,
        rounds=rounds,
        max_runs=runs,
        budget_ms=budget_ms,
        cooldown_s=cooldown_s,
        memory_mb=memory_mb,
        timeout_s=timeout_s,
        fresh=fresh,
        conditions=conditions_of(threads, cpus, mode, relaxed, float16),
        accelerators=named,
        refine=refine,
        every_preference=every_preference,
    )
    listener = to_log(progress)
    chosen = loaded(model)
    with (
        CostStore(arguments.table(costs)) as store,
        reached(device, listener) as client,
    ):
        return profiled_costs(chosen, device or client.serial, client, store, options, listener)


def profiled_costs(
    model: Model,
    reach: str,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    listener: Listener,
) -> Costs:
    """:func:`profile` where device and table are open; ``reach`` is what names the device."""
    profiled = profile_on(model.outline, client, store, options, listener)
    outcome = profiled.outcome
    if outcome.interrupted or outcome.costs is None:
        kept = f"{outcome.n_measured} measurements are kept in {profiled.location}"
        listener.note(f"interrupted: {kept}; the same call goes on from there")
        raise KeyboardInterrupt(kept)
    return Costs(
        model=model,
        device=profiled.device,
        conditions=options.conditions,
        priced=outcome.costs,
        reach=reach,
        fingerprint=outcome.fingerprint,
        location=profiled.location,
        measurements=tuple(store.measurements(outcome.fingerprint, conditions=options.conditions)),
        device_info=_device_info(store, outcome.fingerprint),
        agent_info=outcome.info,
        outcome=outcome,
        notes=model.notes,
    )


def read_costs(
    model: Model | str | os.PathLike[str],
    costs: str | os.PathLike[str] | None = None,
    device: str | None = None,
    *,
    threads: int = 1,
    cpus: str = "big",
    mode: str = "sync",
    relaxed: bool = False,
    float16: bool = False,
    fill: bool = False,
    until: str | None = None,
) -> Costs:
    """Reads what was measured of a model's units from a cost table; no device is needed.

    ``costs`` is that of :func:`profile`. ``device`` is a device of the table: its fingerprint, the
    beginning of it, or its name as `nnapi-prof costs list` shows it, with * and ?; None where there
    is only one. The conditions ``threads``, ``cpus``, ``mode``, ``relaxed`` and ``float16`` are
    those that it was measured under. ``fill`` estimates units that were never measured from what
    else was measured on the device. ``until``, a date or time in UTC, leaves out what was measured
    later.

    Raises CostError where the model was not measured there, UsageError where the table or the
    device is not found.
    """
    chosen = loaded(model)
    conditions = conditions_of(threads, cpus, mode, relaxed, float16)
    where = arguments.table(costs) or default_location()
    if "://" not in where and not Path(where).expanduser().exists():
        raise UsageError(f"cost table {where} does not exist: profile() makes one")
    with CostStore(where) as store:
        devices = measured(store)
        found = find_one(devices, device if device is not None else "*")
        selection = Selection(
            (found.fingerprint,), conditions=conditions, until=_until(until), newest=True
        )
        rows = store.select(selection)
        notes: tuple[str, ...] = chosen.notes
        priced: CostModel
        if fill:
            priced, note = filled_costs(chosen.program, store, found.fingerprint, conditions)
            notes = (*notes, note) if note else notes
        else:
            priced = fit(chosen.graph, rows)
        return Costs(
            model=chosen,
            device=found.name,
            conditions=conditions,
            priced=priced,
            fingerprint=found.fingerprint,
            location=str(store.location),
            measurements=tuple(rows),
            device_info=_device_info(store, found.fingerprint),
            notes=notes,
        )


def conditions_of(threads: int, cpus: str, mode: str, relaxed: bool, float16: bool) -> Conditions:
    """Raises UsageError where one of them is none, or two exclude each other."""
    if relaxed and float16:
        raise UsageError("relaxed lets float32 be computed as float16, float16 has no float32")
    arguments.number("threads", threads, 1, arguments.MOST_THREADS)
    arguments.one_of("mode", mode, [each.value for each in Mode])
    try:
        cores = parse_cpus(cpus)
    except ValueError as error:
        raise UsageError(f"cpus: {error}") from error
    precision = Precision.FLOAT32
    if relaxed or float16:
        precision = Precision.RELAXED if relaxed else Precision.FLOAT16
    return Conditions(precision, Mode(mode), threads, cores)


def _until(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return instant(text, end=True)
    except ValueError as error:
        raise UsageError(
            f"until {text!r} is no date: write 2026-01-31 or 2026-01-31T12:30"
        ) from error


def _device_info(store: CostStore, fingerprint: str) -> Mapping[str, Any]:
    known = {row.fingerprint: row.description for row in store.devices()}
    return known.get(fingerprint, {})

"""Measurement of the costs of a model's units on a device's targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nnapi_prof.api import Listener, Progress, open_client, precisions_of, to_log
from nnapi_prof.api.costs import Calibration, CalibrationOptions, calibrate_model
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.costs import ConditionOptions, Conditions
from nnapi_prof.costs.contention import corun_rows
from nnapi_prof.costs.model.views import FittedCosts
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device import describe, device_fingerprint
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import AgentInfo, HalfArithmetic
from nnapi_prof.device.state import Gates, read_state
from nnapi_prof.execution.profile import MeasureOptions, ProfileOptions, ProfileOutcome
from nnapi_prof.execution.profile.device_monitor import is_phone
from nnapi_prof.execution.profile.session import profile as measure_model
from nnapi_prof.execution.profile.threads import ThreadTrial, TrialInterrupted, run_trial
from nnapi_prof.graph.plan import Precision
from nnapi_prof.options import checked, into, moved, options_of
from nnapi_prof.qnn import is_qnn
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    from nnapi_prof.precision.samples import Source


from nnapi_prof.api.cost_tables import device_info, note_other_agent, open_table
from nnapi_prof.api.costs import Costs, Interrupted


@moved(
    **into("conditions", ConditionOptions),
    **into("options", MeasureOptions),
    **into("gates", Gates),
    beside="options=MeasureOptions(contention=...)",
    beside_s="options=MeasureOptions(contention_s=...)",
)
def profile(
    model: Model | str | os.PathLike[str],
    device: str | AgentClient | None = None,
    *,
    costs: str | os.PathLike[str] | CostStore | None = None,
    conditions: ConditionOptions | Conditions | None = None,
    options: MeasureOptions | None = None,
    gates: Gates | None = None,
    precisions: Sequence[str | Precision] | None = None,
    calibration: Source | None = None,
    samples: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Costs:
    """Measure a model's units and regions on a device, like ``nnapi-prof profile``.

    ``device`` is a serial, ``HOST:PORT``, ``local`` or ``sim:NAME``; None for the only phone, else
    a simulated one; or a device that is open already. For a Snapdragon, ``"qnn:SM8750/fp16"`` or
    ``/int8``, Qualcomm's simulator estimates the NPU's costs without a phone (this requires the
    extra ``qnn``); these are never stored. ``costs`` is the cost table, an SQLite file, a
    PostgreSQL URL or a table that is open; None for ``$NNAPI_PROF_COSTS``, else a file in the
    user's data folder. Its measurements for this device and these conditions are not repeated,
    unless ``MeasureOptions(fresh=True)``.

    The ``conditions`` are :class:`nnapi_prof.ConditionOptions`, as ``ConditionOptions(threads=4)``,
    or those of other costs (``Costs.conditions``). By default a trial of some units decides the
    number of threads (:attr:`Costs.thread_trial`; ``Costs.conditions`` has the number).
    ``options`` are :class:`nnapi_prof.MeasureOptions`, as ``MeasureOptions(refine=False, runs=5)``:
    the kinds and number of measurements. ``gates`` are :class:`nnapi_prof.Gates`: the state of the
    phone to wait for before measurements. ``progress`` is called with a
    :class:`nnapi_prof.Progress` after each measurement; a ``listener`` also hears notes, and
    replaces it.

    ``precisions`` (``float32``, ``relaxed``, ``float16``, ``int8``) measures a float model in each,
    for :func:`nnapi_prof.pareto` and for plans :class:`nnapi_prof.Within` an error; float32 is
    always included. For 8 bits the model is calibrated with ``calibration``: any iterable of
    inputs, such as a DataLoader, a ``.pt`` or ``.npz`` file, or a ``"module:function"`` that
    returns an iterable. A quarter of at most ``samples`` (None: 128) is held out. None takes the
    inputs bundled with the model, else random ones.

    Raises NnapiProfError: DeviceError where the device fails, UsageError, CostError. Ctrl-C raises
    :class:`nnapi_prof.api.costs.Interrupted`, a KeyboardInterrupt. Measurements are kept in both
    cases.
    """
    asked = ConditionOptions.of(conditions)
    chosen_precisions = precisions_of(precisions, asked.conditions)
    settings = profile_options(
        asked,
        checked("options", options, MeasureOptions),
        checked("gates", gates, Gates),
    )
    listener = listener or to_log(progress)
    chosen = as_model(model)
    if isinstance(device, str) and is_qnn(device):
        from nnapi_prof.api.chips import profile_on_chip
        from nnapi_prof.qnn import no_conditions

        stated = {"conditions": asked != ConditionOptions(), "precisions": precisions}
        no_conditions(device, [name for name, value in stated.items() if value])
        own = CalibrationOptions(calibration, samples)
        return profile_on_chip(chosen, device, listener, samples=own).costs
    data = CalibrationOptions(calibration, samples)
    with open_table(costs) as store, open_client(device, listener) as client:
        note_other_agent(store, client.info(), listener)
        if chosen_precisions is None:
            return profile_on(chosen, client, store, settings, listener)
        return _profile_precisions(
            chosen, client, store, settings, listener, chosen_precisions, data
        )


def profile_options(
    conditions: ConditionOptions, options: MeasureOptions, gates: Gates, *, copies: bool = True
) -> ProfileOptions:
    """Combine the options of a profile."""
    return ProfileOptions(
        **{name: getattr(options, name) for name in options_of(MeasureOptions)},
        conditions=conditions.conditions,
        threads_by_trial=conditions.by_trial,
        gates=gates,
        copies=copies,
    )


def profile_on(
    model: Model,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    listener: Listener,
) -> Costs:
    """Run :func:`profile` with a device and a table that are open already."""
    note_sleep(client, listener)
    note_float16(client.info(), options.conditions.precision, listener)
    listener.busy(f"{model.name} on {describe(client.info())}")
    options, trial = with_threads(model, client, store, options, listener)
    outcome = measure_model(model.unit_cache, client, store, options, listener.progress)
    costs = _costs_of(model, client, store, options, outcome, outcome.costs)
    return with_trial(costs, trial)


def with_trial(costs: Costs, trial: ThreadTrial | None) -> Costs:
    """Return the costs with the trial that chose their number of threads. The trial's measurements
    that the profile reused count as new ones."""
    outcome = costs.outcome
    if outcome is not None and trial is not None and trial.n_kept:
        outcome = replace(
            outcome,
            n_measured=outcome.n_measured + trial.n_kept,
            n_reused=max(outcome.n_reused - trial.n_kept, 0),
        )
    return replace(costs, outcome=outcome, thread_trial=trial)


def with_threads(
    model: Model,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    listener: Listener,
) -> tuple[ProfileOptions, ThreadTrial | None]:
    """Run a trial for the number of threads where the options request one. Return the options with
    that number, and the trial. Raises Interrupted."""
    if not options.threads_by_trial:
        return options, None
    try:
        trial = run_trial(model.unit_cache, client, store, options, listener.progress)
    except TrialInterrupted as interrupt:
        info = client.info()
        outcome = ProfileOutcome(
            fingerprint=device_fingerprint(info),
            info=info,
            n_measured=interrupt.n_measured,
            n_failed=0,
            n_refused=0,
            n_reused=0,
            rounds=0,
            stable=False,
            seconds=interrupt.seconds,
            interrupted=True,
        )
        raise Interrupted(describe(info), str(store.location), outcome) from interrupt
    listener.note(threads_sentence(trial))
    threads = options.conditions.threads if trial is None else trial.threads
    return replace(
        options,
        conditions=replace(options.conditions, threads=threads),
        threads_by_trial=False,
        one_thread=trial is not None and trial.one_thread,
    ), trial


def threads_sentence(trial: ThreadTrial | None) -> str:
    """Describe the result of a trial."""
    if trial is None:
        return "the CPU gets 1 thread: there is nothing to choose from"
    first = min(trial.ns)
    times = ", ".join(f"{n}: {trial.ns[first] / ns:.2f}x" for n, ns in trial.ns.items())
    plural = "" if trial.threads == 1 else "s"
    whole = " and the whole model" if trial.whole else ""
    sentence = (
        f"the CPU gets {trial.threads} thread{plural}, by a trial of"
        f" {count(trial.n_units, 'unit')}{whole} (threads: speed; {times})"
    )
    if not trial.one_thread:
        return sentence
    alone, together = (trial.call_ns[n] / 1e3 for n in (1, trial.threads))
    return (
        f"{sentence}; short segments may get 1: the shortest call takes {alone:.0f} instead of"
        f" {together:.0f} us with it"
    )


def note_float16(info: AgentInfo, precision: Precision, listener: Listener) -> None:
    """Report where the CPU computes in float32 instead of float16, or slowly in float16."""
    if precision not in (Precision.RELAXED, Precision.FLOAT16):
        return
    if not info.cpu_float16.serves(precision):
        listener.note(
            f"{precision.value}: the CPU computes in float32, as it has no float16 arithmetic"
        )
    elif info.cpu_float16 is HalfArithmetic.EMULATED:
        listener.note(
            "float16: the CPU has no arithmetic for it: it converts and computes in float32, which"
            " is slower than float32 alone"
        )


def note_sleep(client: AgentClient, listener: Listener) -> None:
    """Report, before measurements, that a phone's screen is off or that it may suspend."""
    if not is_phone(client, client.info()):
        return
    state = read_state(client)
    if state.awake is False:
        listener.note(
            f"the screen of {client.serial} is off: phones lower their clocks then, and off a"
            " charger they suspend; adb shell input keyevent WAKEUP turns it on, and adb shell svc"
            " power stayon true keeps it on"
        )
    elif state.awake and state.stays_awake is False and not state.charging:
        listener.note(
            f"{client.serial} is on no charger and its screen goes off by itself: phones lower"
            " their clocks then, and suspend; keep it on with adb shell svc power stayon true"
        )


def _profile_precisions(
    model: Model,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    listener: Listener,
    precisions: tuple[Precision, ...],
    data: CalibrationOptions,
) -> Costs:
    """Run :func:`profile_on` in several precisions."""
    from nnapi_prof.execution.profile.precisions import profile_precisions

    calibration = calibrate_model(model, client.info(), precisions, data, listener)
    note_sleep(client, listener)
    for precision in precisions:
        note_float16(client.info(), precision, listener)
    listener.busy(f"{model.name} on {describe(client.info())}")
    options, trial = with_threads(model, client, store, options, listener)
    profiled = profile_precisions(
        model.program,
        client,
        store,
        replace(options, one_thread=False),
        listener.progress,
        precisions=precisions,
        recipe=calibration.recipe,
    )
    costs = _costs_of(model, client, store, options, profiled.total, profiled.costs, calibration)
    return with_trial(costs, trial)


def _costs_of(
    model: Model,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions,
    outcome: ProfileOutcome,
    priced: FittedCosts | None,
    calibration: Calibration | None = None,
) -> Costs:
    """Return the measured costs. Raises Interrupted where the profile is incomplete."""
    device, location = describe(client.info()), str(store.location)
    if outcome.interrupted or priced is None:
        raise Interrupted(device, location, outcome)
    return Costs(
        model=model,
        device=device,
        conditions=options.conditions,
        priced=priced,
        device_spec=client.serial,
        fingerprint=outcome.fingerprint,
        location=location,
        measurements=tuple(store.measurements(outcome.fingerprint, conditions=options.conditions)),
        corun_rows=corun_rows(store, outcome.fingerprint, options.conditions),
        device_info=device_info(store, outcome.fingerprint),
        agent_info=outcome.info,
        outcome=outcome,
        notes=model.notes,
        calibration=calibration,
    )

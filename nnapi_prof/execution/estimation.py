"""Estimate a model's costs from the description of a phone, without a device or a network.

``estimate``, ``partition --estimate`` and reports of estimated plans use it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.costs.estimate import Work
from nnapi_prof.costs.estimate.costs import EstimatedCosts
from nnapi_prof.costs.estimate.phones import (
    SIMULATED_FORMAT,
    Description,
    PhoneUnit,
    described_cores,
    parse_description,
    phone_units,
    shipped,
)
from nnapi_prof.costs.estimate.phones import shipped_text as _shipped_text
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model import PHONE_CPU, CostModel
from nnapi_prof.costs.model.forms import (
    ProductForm,
    other_forms,
    place_of,
    product_units,
)
from nnapi_prof.costs.table import Estimate, Price
from nnapi_prof.device.find import SIMULATED, list_phones, phone_file, refuse_fleet
from nnapi_prof.errors import UnsupportedOp, UsageError, did_you_mean, option_name
from nnapi_prof.execution.profile.threads import COUNTS, counts_up_to, least_number
from nnapi_prof.graph.plan import CPU, HOST, Target
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.nnapi import level_number

if TYPE_CHECKING:
    from nnapi_prof.convert import NnapiModel, Operand
    from nnapi_prof.graph.program import Program


_WRITTEN = "name a JSON file that `nnapi-prof calibrate` wrote"
_DATA = {
    "TENSOR_FLOAT32": "float32",
    "TENSOR_FLOAT16": "float16",
    "TENSOR_INT32": "int32",
    "TENSOR_BOOL8": "bool8",
    "TENSOR_QUANT8_ASYMM": "quant8",
    "TENSOR_QUANT8_ASYMM_SIGNED": "quant8_signed",
    "TENSOR_QUANT8_SYMM": "quant8_symm",
    "TENSOR_QUANT8_SYMM_PER_CHANNEL": "per_channel",
    "TENSOR_QUANT16_SYMM": "quant16",
    "TENSOR_QUANT16_ASYMM": "quant16",
}
_BYTES = {"float32": 4, "float16": 2, "int32": 4, "quant16": 2}
NINE_TENTHS = 1.645
"""Normal quantile: nine of ten simulated runs stay within this many of the noise's spreads."""
_READERS = ("ARGMAX", "ARGMIN", "REDUCE_", "TOPK_V2")
"""Prefixes of operations whose work depends on what they read (``runtime/graph/work.c``)."""


def read_phone(name: str) -> dict[str, Any]:
    """Returns the description of a phone: a bundled one by its name (also as ``sim:NAME``), or a
    JSON file of either format. Raises UsageError, listing the names."""
    refuse_fleet(name)
    bare = name.removeprefix(SIMULATED)
    if bare in list_phones():
        path = phone_file(bare)
    elif Path(bare).is_file():
        path = Path(bare)
    elif bare in shipped():
        return dict(json.loads(_shipped_text(bare)))
    else:
        there = [*list_phones(), *shipped()]
        raise UsageError(
            f"no phone {name!r}{did_you_mean(bare, there)}: there are {', '.join(there)}, "
            f"or {_WRITTEN}"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}; {_WRITTEN}") from error
    if not isinstance(data, dict) or "format" not in data:
        raise UsageError(f"{path} is not a description of a phone: {_WRITTEN}")
    return data


def described_device(phone: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a cost table's entry for a phone with this description; empty for a real phone, whose
    description has its latencies only."""
    if phone.get("format") != SIMULATED_FORMAT:
        return {}
    properties = dict(phone.get("properties", {}))
    return {
        "phone": phone.get("name"),
        "abi": properties.get("ro.product.cpu.abi", ""),
        "os": "android",
        "api_level": int(properties.get("ro.build.version.sdk", 30)),
        "properties": properties,
        "nnapi_library": None,  # NNAPI's own choice is not estimated
        "accelerators": [
            {name: one[name] for name in ("name", "type", "version", "feature_level")}
            for one in phone["accelerators"]
        ],
    }


def estimated_costs(
    program: Program,
    phone: Mapping[str, Any],
    *,
    threads: int | None = None,
    burst: bool = False,
    relaxed: bool = False,
) -> EstimatedCosts:
    """Estimates the model's costs on the phone.

    The description of a real phone is valid only for the number of CPU threads and the NNAPI
    settings that it was measured with: ``threads`` None takes that number, others raise UsageError.
    For a simulated phone, None takes the smallest number with which its CPU runs the model within
    :data:`.LEAST_GAIN` of the fastest. Raises CostError where the description is damaged.
    """
    if phone.get("format") == SIMULATED_FORMAT:
        chosen = threads or _fastest_number(program, phone)
        units = phone_units(phone, chosen, burst)
        spread = float(phone.get("noise", {}).get("spread", {}).get("value", 0.0))
        costs = _simulated(program, units, relaxed, NINE_TENTHS * spread)
        return replace(costs, threads=chosen)
    described = parse_description(phone)
    if threads not in (None, described.threads):
        raise UsageError(
            f"{described.name} was measured with {described.threads} CPU"
            f" thread{'s' * (described.threads != 1)}, and nothing tells what {threads} would take",
            f"leave {option_name('threads')} away, or `nnapi-prof calibrate --threads {threads}`"
            " from a phone",
        )
    if burst or relaxed:
        asked = option_name("burst" if burst else "relaxed")
        raise UsageError(f"{described.name} was not measured with {asked}", "leave it away")
    return described_costs(program, described)


def _fastest_number(program: Program, phone: Mapping[str, Any]) -> int:
    """Returns the number of threads to run a model with on a simulated phone's CPU."""
    totals: dict[int, float] = {}
    works: list[tuple[Work, ...] | str] | None = None
    for n in counts_up_to(described_cores(phone) or max(COUNTS)):
        cpu = next(unit for unit in phone_units(phone, n, burst=False) if unit.target == CPU)
        works = works or unit_works(program, cpu.level)
        totals[n] = sum(cpu.ns(each) for each in works if not isinstance(each, str))
    return least_number(totals)


def described_costs(program: Program, described: Description) -> EstimatedCosts:
    """Returns the costs by a fitted description."""
    from nnapi_prof.convert.lower import why_not

    graph = program.units
    works = [_work(unit) for unit in graph.units]
    refused = [why_not(program, unit.index, described.level) for unit in graph.units]
    reasons = [None if refusal is None else str(refusal) for refusal in refused]
    estimates: dict[tuple[int, Target], Estimate] = {}
    refusals: dict[tuple[int, Target], str] = {}
    for target, model in described.targets.items():
        for unit, work, lowering in zip(graph.units, works, reasons, strict=True):
            reason = lowering
            if reason is None and work.rate in model.refused:
                reason = f"{target}: no {work.rate} ran there when it was measured"
            if reason is not None:
                refusals[unit.index, target] = reason
                continue
            ns = float(model.works_ns([work])[0])
            never = None if model.knows(work) else work.rate
            estimates[unit.index, target] = Estimate(ns, model.uncertainty([work]), never)
    prices = {
        target: Price(model.invocation_ns, model.ns_per_in_byte, model.ns_per_out_byte)
        for target, model in described.targets.items()
    }
    costs = _with_host(graph, prices, estimates, refusals, described.simulated)
    return replace(costs, models=described.targets, works=works, threads=described.threads)


def _work(unit: Unit) -> Work:
    """Returns the unit's work, which a loaded model has for each of its units."""
    assert unit.work is not None, unit.name
    return unit.work


def _simulated(
    program: Program, units: list[PhoneUnit], relaxed: bool, error: float
) -> EstimatedCosts:
    graph = program.units
    converted = {unit.level: unit_works(program, unit.level) for unit in units}
    others = {level: _works_in_forms(program, level) for level in converted}
    estimates: dict[tuple[int, Target], Estimate] = {}
    refusals: dict[tuple[int, Target], str] = {}
    forms: dict[str, dict[int, ProductForm]] = {}
    for processor in units:
        spread = None if processor.fuses else error
        own = forms.setdefault(place_of(processor.target), {})
        for index, usual in enumerate(converted[processor.level]):
            works_of = {None: usual, **others[processor.level].get(index, {})}
            priced: dict[ProductForm | None, float] = {}
            for form, works in works_of.items():
                reason = works if isinstance(works, str) else processor.why_not(works)
                if isinstance(works, str) or reason is not None:
                    refusals.setdefault((index, processor.target), reason or "")
                    continue
                priced[form] = processor.ns(_in_precision(works, processor, relaxed))
            if not priced:
                continue
            refusals.pop((index, processor.target), None)
            cheapest = min(priced, key=lambda form: (priced[form], form is not None))
            estimates[index, processor.target] = Estimate(priced[cheapest], spread)
            if cheapest is not None:
                own[index] = cheapest
    prices = {processor.target: processor.price for processor in units}
    for processor in units:
        if processor.target == CPU and relaxed and processor.has_float16:
            # Values that cross a region's border are converted, by one more operation.
            per_byte = 1.5 / processor.bytes_per_ns
            prices[CPU] = Price(processor.operation_ns, per_byte, per_byte)
    costs = _with_host(graph, prices, estimates, refusals, simulated=True)
    return replace(costs, forms={place: own for place, own in forms.items() if own})


def _with_host(
    graph: UnitGraph,
    prices: Mapping[Target, Price],
    estimates: dict[tuple[int, Target], Estimate],
    refusals: dict[tuple[int, Target], str],
    simulated: bool,
) -> EstimatedCosts:
    """Returns the costs; units that nothing on the phone can run have eager PyTorch on the host."""
    used = dict(prices)
    for unit in graph.units:
        if not any((unit.index, target) in estimates for target in prices):
            used[HOST] = Price()
            ns = PHONE_CPU.unit_ns(graph, unit)
            estimates[unit.index, HOST] = Estimate(ns, never_measured=_work(unit).rate)
    return EstimatedCosts(graph, used, estimates, refusals, simulated)


def _works_in_forms(
    program: Program, level: int
) -> dict[int, dict[ProductForm | None, tuple[Work, ...] | str]]:
    """Returns the NNAPI operations of each unit with a product of activations, in each form except
    the usual one, or the reason why the form has none."""
    works: dict[int, dict[ProductForm | None, tuple[Work, ...] | str]] = {}
    for unit in product_units(program.units):
        forms = other_forms(program.units, unit, level_number(level))
        works[unit.index] = {form: _converted(program, unit.index, level, form) for form in forms}
    return works


def _converted(
    program: Program, unit: int, level: int, form: ProductForm | None = None
) -> tuple[Work, ...] | str:
    from nnapi_prof.convert.lower import convert_region

    forms = () if form is None else ((unit, form),)
    try:
        return operation_works(convert_region(program, [unit], level, forms).model)
    except UnsupportedOp as refusal:
        return str(refusal)


def unit_works(program: Program, level: int) -> list[tuple[Work, ...] | str]:
    """Lists the NNAPI operations of each unit at a feature level, or the reason why it has none."""
    by_signature: dict[str, tuple[Work, ...] | str] = {}
    for unit in program.units.units:
        if unit.signature not in by_signature:
            by_signature[unit.signature] = _converted(program, unit.index, level)
    return [by_signature[unit.signature] for unit in program.units.units]


def operation_works(model: NnapiModel) -> tuple[Work, ...]:
    """Returns the operations of an NNAPI model, counted as the emulator counts them."""
    constant = {value.operand for value in model.values}
    works = []
    for operation in model.operations:
        read = [model.operands[i] for i in operation.inputs]
        data = [(i, o) for i, o in zip(operation.inputs, read, strict=True) if _is_tensor(o)]
        written = [model.operands[i] for i in operation.outputs]
        first = data[0][1] if data else written[0]
        kind = operation.code.name
        out = written[0].dims
        weights = read[1].dims if len(read) > 1 else ()
        elements = float(sum(math.prod(o.dims) for o in written))
        per_output = _products(kind, read, weights)
        macs = elements * per_output
        if kind == "TRANSPOSE_CONV_2D":
            macs = float(math.prod(read[0].dims) * math.prod(weights[:3]))
        elif kind.startswith(_READERS):
            macs = float(max(math.prod(read[0].dims), elements))
        works.append(
            Work(
                kind=kind,
                data=_DATA[first.type.name],
                macs=macs,
                in_bytes=float(sum(_operand_bytes(o) for i, o in data if i not in constant)),
                out_bytes=float(sum(map(_operand_bytes, written))),
                weight_bytes=float(sum(_operand_bytes(o) for i, o in data if i in constant)),
                pixels=float(max(math.prod(out[:-1]), 1)),
                width=float(out[-2] if len(out) > 1 else 1),
                in_channels=float(weights[-1] if weights else 1),
                out_channels=float(out[-1] if out else 1),
                n_inputs=len(data),
                rank=max(len(o.dims) for o in [*written, *(o for _, o in data)]),
            )
        )
    return tuple(works)


def _products(kind: str, read: list[Operand], weights: tuple[int, ...]) -> float:
    """Returns the multiply-accumulates for each element written."""
    if kind in ("CONV_2D", "GROUPED_CONV_2D"):
        return float(math.prod(weights[1:]))
    if kind == "DEPTHWISE_CONV_2D":
        return float(math.prod(weights[1:3]))
    if kind == "FULLY_CONNECTED":
        return float(weights[1])
    if kind == "BATCH_MATMUL":
        return float(read[0].dims[-1])
    return 1.0


def _is_tensor(operand: Operand) -> bool:
    return operand.type.name in _DATA


def _operand_bytes(operand: Operand) -> int:
    return math.prod(operand.dims) * _BYTES.get(_DATA[operand.type.name], 1)


def _in_precision(works: tuple[Work, ...], processor: PhoneUnit, relaxed: bool) -> tuple[Work, ...]:
    """Returns the works, with float32 replaced where ``relaxed`` lets a processor compute in
    float16. The CPU does so, with half the bytes, where it has float16 arithmetic."""
    if not relaxed or (processor.target == CPU and not processor.has_float16):
        return works
    floats = [work.data == "float32" for work in works]
    if processor.target != CPU:
        return tuple(
            replace(work, data="relaxed") if is_float else work
            for work, is_float in zip(works, floats, strict=True)
        )
    return tuple(
        replace(
            work,
            data="float16",
            in_bytes=work.in_bytes / 2,
            out_bytes=work.out_bytes / 2,
            weight_bytes=work.weight_bytes / 2,
        )
        if is_float
        else work
        for work, is_float in zip(works, floats, strict=True)
    )


def filled_costs(
    program: Program, rows: Sequence[Measurement], fingerprint: str
) -> tuple[CostModel, str | None]:
    """Returns the costs of a model that was only partly measured on a device, and a note on that.

    Units that were never measured are estimated by a description fitted to ``rows``, all rows of
    the device in the table, of any model. Raises CostError where there are none.
    """
    from nnapi_prof.costs.estimate.calibration import calibrate
    from nnapi_prof.costs.estimate.costs import fill

    described, _ = calibrate(rows, "device", f"cost table, device {fingerprint}")
    costs = fill(program.units, rows, described_costs(program, described))
    guessed = len({unit for unit, _ in costs.filled})
    if not guessed:
        return costs, None
    return costs, (
        f"{guessed} of {len(program.units.units)} units were not measured on every target: their"
        " costs there are estimated from what else was measured on this device"
    )

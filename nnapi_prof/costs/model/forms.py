"""Choose how products of two activations become NNAPI operations, based on measurements.

A matrix product with a batch on both sides (mostly in attention) can be lowered in several forms
below level 6, and which one is fast, or runs at all, depends on the driver. A unit in another form
than the usual one of its level is measured under ``SIGNATURE~FORM``; a region with such units has
these as members, and a signature of its own. :func:`chosen_forms` picks the cheapest forms by the
table, and :func:`rows_in_forms` gives the rows that then hold, in terms of the graph.
"""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.graph.plan import Plan, Target
from nnapi_prof.graph.unit import Unit, UnitGraph, digest

MARK = "~"
"""Separator between the signature of a unit, which is hex, and its form."""
MOST_SHAPES = 6
"""Most different products that are tried in each form; others take the form of the nearest."""
LEAST_SAVED = 0.01
"""Smallest saving, relative to the usual form, for which another form is chosen; less is noise."""
_KINDS = frozenset({"BATCH_MATMUL", "BADDBMM", "SCALED_DOT_PRODUCT_ATTENTION"})
"""Kinds of :class:`.Work` that are products."""


class ProductForm(enum.Enum):
    """NNAPI operations for a product with batches on both sides."""

    PAIRS = "pairs"
    """One FULLY_CONNECTED for each pair of matrices, between slices."""
    GROUPS = "groups"
    """One GROUPED_CONV_2D with a group for each pair, from level 3 on."""
    SUMS = "sums"
    """A MUL that broadcasts, and sums of its last axis by FULLY_CONNECTED."""
    BATCHED = "batched"
    """One BATCH_MATMUL, from level 6 on."""

    @property
    def words(self) -> str:
        """Text for people."""
        return {
            ProductForm.PAIRS: "one FULLY_CONNECTED for each pair of matrices",
            ProductForm.GROUPS: "GROUPED_CONV_2D",
            ProductForm.SUMS: "a broadcast MUL and sums",
            ProductForm.BATCHED: "BATCH_MATMUL",
        }[self]


UnitForms = tuple[tuple[int, ProductForm], ...]
"""Units of a region that are not in the usual form, ascending, each with its form."""
Forms = Mapping[str, Mapping[int, ProductForm]]
"""Accelerator, or key of another target -> units that are not in the usual form -> form."""


FEW_PRODUCTS = 2
"""Number of products up to which one by one needs no more operations than a grouped convolution."""
FIRST_LEVELS = {
    ProductForm.PAIRS: 1,
    ProductForm.SUMS: 1,
    ProductForm.GROUPS: 3,
    ProductForm.BATCHED: 6,
}
"""Form -> first feature level that has it."""


def usual_form(level: int, count: int) -> ProductForm:
    """Returns the default form of ``count`` products at a feature level (its number), used where
    nothing was measured."""
    if level >= FIRST_LEVELS[ProductForm.BATCHED]:
        return ProductForm.BATCHED
    has_groups = level >= FIRST_LEVELS[ProductForm.GROUPS]
    return ProductForm.GROUPS if has_groups and count > FEW_PRODUCTS else ProductForm.PAIRS


def other_forms(
    graph: UnitGraph, unit: Unit, level: int, newest: int = 0
) -> tuple[ProductForm, ...]:
    """Returns the forms of a unit's products other than the usual one of a feature level (its
    number), up to that level or ``newest``, the accelerator's own, whichever is higher."""
    count = max(math.prod(graph.values[name].shape[:-2]) for name in unit.inputs)
    usual = usual_form(level, count)
    highest = max(level, newest)
    return tuple(
        form for form, since in FIRST_LEVELS.items() if highest >= since and form is not usual
    )


def place_of(target: Target) -> str:
    """Returns the key of a target in :data:`Forms`, which an accelerator's preferences share."""
    return target.accelerator or target.key


def product_units(graph: UnitGraph) -> tuple[Unit, ...]:
    """Returns the units with a product of matrices that has batches on both sides."""
    return tuple(unit for unit in graph.units if _has_batches(graph, unit))


def _has_batches(graph: UnitGraph, unit: Unit) -> bool:
    if unit.work is None or unit.work.kind not in _KINDS or unit.quantised:
        return False
    types = [graph.values[name] for name in unit.inputs]
    batched = sum(math.prod(each.shape[:-2]) > 1 for each in types)
    return all(each.dtype == "float32" for each in types) and batched >= min(2, len(types))


def units_to_try(graph: UnitGraph) -> tuple[Unit, ...]:
    """Returns the heaviest different products, at most :data:`MOST_SHAPES`."""
    first = {unit.signature: unit for unit in reversed(product_units(graph))}
    return tuple(sorted(first.values(), key=lambda unit: (-unit.macs, unit.index))[:MOST_SHAPES])


def signature_in(form: ProductForm, signature: str) -> str:
    """Returns the signature of a unit in a form."""
    return f"{signature}{MARK}{form.value}"


def unit_forms(forms: Forms, units: Iterable[int], target: Target) -> UnitForms:
    """Returns the units of a region that are not in the usual form of their level. A target with a
    precision of its own has only usual forms."""
    own = forms.get(place_of(target), {}) if target == target.base else {}
    return tuple((unit, own[unit]) for unit in sorted(units) if unit in own)


def region_signature_in(graph: UnitGraph, own: UnitForms, region: Iterable[int], plain: str) -> str:
    """Returns the signature of a region with units in other forms; ``plain`` without such units."""
    if not own:
        return plain
    if len(tuple(region)) == 1:
        return signature_in(own[0][1], plain)
    named = sorted({(graph.units[unit].signature, form.value) for unit, form in own})
    return f"{plain}{MARK}{digest(named)[:8]}"


def chosen_forms(graph: UnitGraph, rows: Iterable[Measurement]) -> Forms:
    """Returns the cheapest form of each product on each accelerator, by the units' own rows. A
    product that was not tried takes the form of the one with the most similar arithmetic. The usual
    form stays where nothing runs, or no other form saves :data:`LEAST_SAVED`."""
    products = product_units(graph)
    signatures = {unit.signature for unit in products}
    measured: dict[str, dict[str, dict[ProductForm | None, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        plain, form = _split(row.signature)
        if row.n_units == 1 and plain in signatures and row.members == (row.signature,):
            ns = row.latency_ns if row.usable else math.inf
            own = measured[place_of(row.target)][plain]
            own[form] = min(own.get(form, math.inf), ns)
    return {
        place: form_of
        for place, by_unit in measured.items()
        if (form_of := _chosen_of(products, by_unit))
    }


def _chosen_of(
    products: Iterable[Unit], measured: Mapping[str, Mapping[ProductForm | None, float]]
) -> dict[int, ProductForm]:
    cheapest = {name: _cheapest(ns) for name, ns in measured.items()}
    tried = [unit for unit in products if len(measured.get(unit.signature, {})) > 1]
    form_of: dict[int, ProductForm] = {}
    for unit in products:
        form = cheapest.get(unit.signature)
        if unit.signature not in measured and tried:
            apart = {other.index: abs(math.log(other.macs / unit.macs)) for other in tried}
            nearest = min(tried, key=lambda other: (apart[other.index], other.index))
            form = cheapest[nearest.signature]
        if form is not None:
            form_of[unit.index] = form
    return form_of


def _cheapest(ns: Mapping[ProductForm | None, float]) -> ProductForm | None:
    form = min(ns, key=lambda each: (ns[each], each is not None))
    usual = ns.get(None, math.inf)
    is_faster = math.isfinite(ns[form]) and ns[form] < usual * (1 - LEAST_SAVED)
    return form if is_faster else None


def rows_in_forms(
    graph: UnitGraph, rows: Iterable[Measurement], forms: Forms
) -> Iterator[tuple[Measurement, Measurement | None]]:
    """Yields each row with its version in terms of the graph with ``forms``, or None where it was
    measured in other forms."""
    forms_by_place = {
        place: {graph.units[unit].signature: form for unit, form in own.items()}
        for place, own in forms.items()
    }
    for row in rows:
        own = forms_by_place.get(place_of(row.target), {})
        parts = [_split(member) for member in row.members]
        if any(form is not own.get(plain) for plain, form in parts):
            yield row, None
        elif all(form is None for _, form in parts):
            yield row, row
        else:
            plain_members = tuple(plain for plain, _ in parts)
            signature = row.signature.partition(MARK)[0]
            yield row, replace(row, signature=signature, members=plain_members)


def formed_rows(
    graph: UnitGraph, rows: Iterable[Measurement], forms: Forms | None = None
) -> list[Measurement]:
    """Returns the rows that hold with ``forms``; None chooses forms by the rows."""
    every = list(rows)
    chosen = chosen_forms(graph, every) if forms is None else forms
    return [own for _, own in rows_in_forms(graph, every, chosen) if own is not None]


def best_of_forms(rows: Iterable[Measurement]) -> list[Measurement]:
    """Returns the rows of any models, with each unit that was tried in several forms only in its
    fastest one, under its plain signature."""
    usual_rows: list[Measurement] = []
    tried: dict[tuple[str, Target], list[Measurement]] = defaultdict(list)
    for row in rows:
        plain, form = _split(row.signature)
        if form is None:
            usual_rows.append(row)
        elif row.usable:
            tried[plain, row.target].append(replace(row, signature=plain, members=(plain,)))
    best = {at: min(own, key=lambda row: row.latency_ns) for at, own in tried.items()}

    def is_beaten(row: Measurement) -> bool:
        other = best.get((row.signature, row.target))
        return other is not None and not (row.usable and row.latency_ns <= other.latency_ns)

    usual = [row for row in usual_rows if not is_beaten(row)]
    there = {(row.signature, row.target) for row in usual}
    return [*usual, *(row for at, row in best.items() if at not in there)]


def _split(signature: str) -> tuple[str, ProductForm | None]:
    plain, mark, word = signature.partition(MARK)
    form_named = next((form for form in ProductForm if form.value == word), None)
    return (plain, form_named) if not mark or form_named is not None else (signature, None)


def forms_note(plan: Plan, forms: Forms) -> str | None:
    """Returns a note on the products of a plan that are not in the usual form; None where all
    are."""
    counts = Counter(
        (place_of(segment.target), form)
        for segment in plan.segments
        for _, form in unit_forms(forms, segment.units, segment.target)
    )
    if not counts:
        return None
    parts = [f"{n} on {place} as {form.words}" for (place, form), n in counts.items()]
    return f"products of two activations in the form that was cheapest: {', '.join(parts)}"


def forms_to_json(forms: Forms) -> dict[str, dict[str, str]]:
    return {
        place: {str(unit): form.value for unit, form in own.items()} for place, own in forms.items()
    }


def forms_from_json(data: Mapping[str, Mapping[str, str]]) -> Forms:
    """Reads the output of :func:`forms_to_json`. Raises ValueError or AttributeError where ``data``
    is something else."""
    return {
        place: {int(unit): ProductForm(form) for unit, form in own.items()}
        for place, own in data.items()
    }

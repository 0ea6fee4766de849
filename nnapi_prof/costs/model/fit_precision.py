"""Measurements of one device in several precisions -> :class:`PrecisionCosts` of a float model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model.fit import UnitSet, fit
from nnapi_prof.costs.model.infer import infer_precision
from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.model.quantised import Conversion, ConversionCosts, EightBits
from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.costs.model.regression import FitCache
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Precision
from nnapi_prof.graph.unit import UnitGraph


def fit_eight_bits(
    eight_bits: EightBits,
    rows: Iterable[Measurement],
    *,
    regions: Iterable[UnitSet] = (),
    refit: FitCache | None = None,
) -> CostModel:
    """The cost model over ``eight_bits.canonical_graph``, of rows in its terms
    (:meth:`EightBits.shared_rows`). ``regions``, ``refit`` and errors are those of
    :func:`~nnapi_prof.costs.model.fit.fit`."""
    return fit(
        eight_bits.canonical_graph,
        rows,
        regions=regions,
        matcher=eight_bits.canonical_matcher,
        refit=refit,
        among=sorted(eight_bits.float_of),
    )


def fit_conditional(
    floats: CostModel,
    leading: Sequence[Measurement],
    rows: Sequence[Measurement],
    *,
    regions: Iterable[UnitSet] = (),
    refit: FitCache | None = None,
) -> CostModel:
    """The cost model in relaxed or float16, of ``rows`` under such conditions, and by ``floats``,
    fitted to the rows ``leading`` in float32, where nothing was measured. Without rows of the CPU,
    which has no float16 then, its costs are those of float32, and it is none of the targets. The
    rest is as in :func:`~nnapi_prof.costs.model.fit.fit`."""
    graph = floats.graph
    on_cpu = [row for row in leading if row.target == CPU]
    has_cpu = any(
        row.target == CPU and row.conditions.precision is not Precision.FLOAT32 for row in rows
    )
    inference = infer_precision(graph, leading, rows, floats.fits)
    model = fit(
        graph,
        [*([] if has_cpu else on_cpu), *rows, *inference.refused],
        regions=regions,
        refit=refit,
        also=inference.samples,
    )
    fits = inference.share_spreads(model.fits, floats.fits)
    return replace(
        model,
        targets=tuple(t for t in model.targets if has_cpu or t != CPU),
        fits={t: fitted for t, fitted in fits.items() if has_cpu or t != CPU},
    )


def fit_precisions(
    graph: UnitGraph,
    rows: Mapping[Precision, Sequence[Measurement]],
    eight_bits: EightBits | None = None,
    conversions: Sequence[Conversion] = (),
) -> PrecisionCosts:
    """The costs of a float model from the table of one device.

    ``rows`` are :meth:`.CostStore.measurements` under conditions that differ in their precision:
    those in float32 always, in relaxed and float16 where these are asked for. With ``eight_bits``,
    what can be is in 8 bits, too: rows of its units are in those of float32, as are those of
    ``conversions``.

    Raises CostError where units, or conversions, were never measured.
    """
    leading = rows[Precision.FLOAT32]
    floats = fit(graph, leading)
    models = {Precision.FLOAT32: floats}
    for precision in (Precision.RELAXED, Precision.FLOAT16):
        if precision in rows:
            models[precision] = fit_conditional(floats, leading, rows[precision])
    if eight_bits is None or not eight_bits.unit_of:
        return PrecisionCosts(graph, models)
    models[Precision.INT8] = fit_eight_bits(eight_bits, eight_bits.shared_rows(leading))
    tried = {row.signature for row in leading}
    if any(conversion.signature not in tried for conversion in conversions):
        raise CostError(
            "converting values between floats and 8 bits was never measured on this device",
            "run "
            "`nnapi-prof profile --precisions float32,int8` with the same model, inputs,"
            " calibration and device",
        )
    converting = ConversionCosts.of(conversions, leading)
    return PrecisionCosts(graph, models, eight_bits, converting)

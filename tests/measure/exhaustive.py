"""Every convex region of a model on every target: what refinement saves, and is judged by."""

from dataclasses import replace

from nnapi_prof.costs.measurement import Kind
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.store import CostStore
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile import ProfileOptions, ProgressCallback
from nnapi_prof.execution.profile.measurer import Client
from nnapi_prof.execution.profile.regions import MOST_CONVEX
from nnapi_prof.execution.profile.session import Session
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.graph.plan import Plan
from nnapi_prof.partition.blocks import convex_sets, members
from tests.partition.cases import solve


def profile_exhaustively(
    unit_cache: UnitGraphCache,
    client: Client,
    store: CostStore,
    options: ProfileOptions | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[CostModel, Plan, int]:
    """Measures every convex region on every target where all its units run; the costs, the plan
    that follows, and how many measurements there are (equal regions count once).

    Raises UsageError where there are too many to count, DeviceError where the device fails.
    """
    options = replace(options or ProfileOptions(), every_preference=True)
    graph = unit_cache.units
    found = convex_sets([graph.predecessors(u) for u in range(len(graph.units))], MOST_CONVEX)
    if found is None:
        raise UsageError(f"{unit_cache.name} has more than {MOST_CONVEX} convex regions")
    regions = sorted(members(region) for region in found)
    session = Session(unit_cache, client, store, options, progress)
    session.measure_units()
    several = [(Kind.REGION, region) for region in regions if len(region) > 1]
    session.measurer.measure(
        "regions", [job for job in session.jobs(several) if session.all_units_run(job)]
    )
    costs = session.fit(regions)
    plan = solve(graph, costs)
    return costs, plan, session.outcome().n_rows

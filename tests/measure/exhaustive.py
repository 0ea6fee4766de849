"""Every convex region of a model on every target: what refinement saves, and is judged by."""

from dataclasses import replace

from nnapi_prof.costs.measurement import Kind
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.store import CostStore
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.measurer import Client
from nnapi_prof.execution.profile.regions import MOST_CONVEX
from nnapi_prof.execution.profile.session import Session
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.graph.plan import Plan
from nnapi_prof.partition.blocks import convex_sets, members
from tests.partition.cases import solve


def profile_exhaustively(
    unit_cache: UnitGraphCache, client: Client, store: CostStore, options: ProfileOptions
) -> tuple[CostModel, Plan, int]:
    """Measures every convex region on every target where all its units run; the costs, the plan
    that follows, and how many measurements there are (equal regions count once)."""
    graph = unit_cache.units
    sets = convex_sets([graph.predecessors(u) for u in range(len(graph.units))], MOST_CONVEX)
    regions = sorted(members(region) for region in sets)
    session = Session(unit_cache, client, store, replace(options, every_preference=True), None)
    session.measure_units()
    several = [(Kind.REGION, region) for region in regions if len(region) > 1]
    jobs = [job for job in session.jobs(several) if session.all_units_run(job)]
    session.measurer.measure("regions", jobs)
    costs = session.fit(regions)
    return costs, solve(graph, costs), session.outcome().n_rows

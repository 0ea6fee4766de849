"""Profile a model on a device: measure, partition, measure the plan, until it is stable."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from nnapi_prof.bundle.plan_set import usual_in_flight
from nnapi_prof.costs.contention import Slowdowns, slowdowns
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import UnitSet
from nnapi_prof.costs.store import CostStore
from nnapi_prof.errors import DeviceError, PartitionError
from nnapi_prof.execution.profile import (
    ProfileOptions,
    ProfileOutcome,
    ProgressCallback,
    tell_planning,
)
from nnapi_prof.execution.profile.corun import measure_pairs, pairs_to_measure
from nnapi_prof.execution.profile.jobs import (
    Job,
)
from nnapi_prof.execution.profile.measurer import Client
from nnapi_prof.execution.profile.regions import (
    LIMITS,
    Chosen,
    Warm,
    choose,
    count_exhaustive,
    rivals,
    unknown,
    unmeasured,
    worthwhile_targets,
)
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.execution.profile.unit_session import UnitSession
from nnapi_prof.graph.plan import Plan, Segment, Target
from nnapi_prof.partition import SearchLimits, make_problem, plan_problem, plan_throughput
from nnapi_prof.partition.queues import Dispatch

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program


MAX_TURNS_OF_BASELINES = 4
"""Rounds of measuring baselines: one may then be better under a preference not measured yet."""
PLANNING_S = 2.5
PLANNING_SHARE = 0.1
"""Planning takes so many seconds, or that share of the measuring time if that is more; ..."""
SHARE_OF_LEFT = 0.2
LEAST_SECONDS = 0.1
"""... a single plan takes this share of the time left, and never less than a moment. Small networks
end with a proof long before."""
MOST_ROUNDS_OF_FRAMES = 6
MAX_ROUNDS = 16
"""Rounds of measure, partition, measure; usually two to eight, and later ones are short."""


def profile(
    model: Program | UnitGraphCache,
    client: Client,
    store: CostStore,
    options: ProfileOptions | None = None,
    progress: ProgressCallback | None = None,
) -> ProfileOutcome:
    """Measures units, chains and the regions that a plan may have on a device.

    1. A few units on the CPU and on every accelerator under one preference. Every unit on those
       that are not far slower (on all where ``options.accelerators`` names them), a sample of units
       under their other preferences, and all units where the sample shows a preference as faster.
       The heaviest products of two activations are measured in every form that NNAPI has for them,
       and have the cheapest form from then on.
    2. Chains and runs of units where all of them run, on targets that a plan could use; the whole
       model on NNAPI's own choice.
    3. With ``options.refine``, up to :data:`MAX_ROUNDS` times: fit the costs, partition, measure
       the plan's regions whole, and those of the plan that would be best if everything unmeasured
       took the lower end of its interval, while that could still save anything. Once the plan is
       stable, those of the baselines.
    4. With ``options.contention``, units of the model at once; then, as in step 3, the regions of
       the plans for many frames, and of their baselines.

    Each result is in ``store`` when the next one is read. Ctrl-C ends it with an outcome marked
    ``interrupted``; DeviceError (AgentError among them) passes on, with the number of rows kept.
    The same call measures only what is missing; a :class:`UnitGraphCache` is then loaded only if
    needed.
    """
    unit_cache = model if isinstance(model, UnitGraphCache) else UnitGraphCache.of(model)
    session = Session(unit_cache, client, store, options or ProfileOptions(), progress)
    try:
        return session.run()
    except KeyboardInterrupt:
        costs, plan = session.so_far
        return session.outcome(interrupted=True, costs=costs, plan=plan)
    except DeviceError as error:
        if not session.measurer.n_measured:
            raise
        rest = (
            f"the {session.measurer.n_measured} measurements made before are kept in "
            f"{store.location}; the same command goes on where this one stopped"
        )
        raise type(error)(f"{error}; {rest}", serial=error.serial) from error


class Session(UnitSession):
    """State of one profile; use :func:`profile`."""

    def __init__(
        self,
        unit_cache: UnitGraphCache,
        client: Client,
        store: CostStore,
        options: ProfileOptions,
        progress: ProgressCallback | None,
        choosing_forms: bool = True,
    ) -> None:
        self._began = time.monotonic()
        super().__init__(
            unit_cache, client, store, options, progress, choosing_forms=choosing_forms
        )
        self._useful: frozenset[Target] = frozenset()
        """Targets that a plan may use."""
        self._rounds = 0
        self._n_regions = 0
        self._n_exhaustive: int | None = None
        self._potential = 0.0
        self._stable = False
        self._contention: Slowdowns | None = None
        self._warm = Warm()
        self.so_far: tuple[CostModel | None, Plan | None] = (None, None)
        """Costs and plan of the last round."""

    def run(self) -> ProfileOutcome:
        self.measure_units()
        with self.measurer.spending("plan"):
            costs = self.fit_alone()
            problem = make_problem(self._graph, costs.table)
            plan = plan_problem(problem, limits=LIMITS, with_curve=False).default
            self._useful = worthwhile_targets(costs, plan, self.worth_trying)
        self.measure_chains(self._useful)
        return self._refine()

    def _refine(self) -> ProfileOutcome:
        """Measures and plans in rounds, until the plans are stable."""
        named: set[UnitSet] = set()
        costs, chosen = self._settle(named)
        if self._options.contention or self._options.contention_s:
            contention = self._measure_beside(costs)
            if self._settle_frames(costs, contention, named):
                costs, chosen = self._settle(named)
        with self.measurer.spending("plan"):
            others = rivals(self._graph, costs, self._options.copies)
            self._n_exhaustive = count_exhaustive(self._graph, costs)
        self._potential = chosen.potential
        return self.outcome(costs=costs, plan=chosen.plan, rivals=others)

    def _settle(self, named: set[UnitSet]) -> tuple[CostModel, Chosen]:
        """Measures regions of the plan with the lowest latency until it is stable, then the
        baselines'; ``named`` are the regions measured so far."""
        self.measurer.settle()
        costs = self.fit(named)
        chosen = self._choose(costs)
        turns_of_baselines = 0
        while self._options.refine and self._rounds < MAX_ROUNDS:
            phase = f"regions, round {self._rounds + 1}"
            jobs = self._segment_jobs(chosen.to_measure)
            self.measurer.note_reused(jobs)
            if all(job.key in self.measurer.have for job in jobs):
                with self.measurer.spending("plan"):
                    others = rivals(self._graph, costs, self._options.copies)
                jobs = self._segment_jobs(s for plan in others for s in unknown(plan, costs))
                if not jobs or turns_of_baselines == MAX_TURNS_OF_BASELINES:
                    if self._reopen(chosen.plan):
                        costs = self.fit(named)
                        chosen = self._choose(costs)
                        continue
                    if self.measurer.settle():
                        costs = self.fit(named)
                        chosen = self._choose(costs)
                        continue
                    self._stable = True
                    break
                turns_of_baselines += 1
                phase = f"baselines, round {turns_of_baselines}"
            else:
                self._rounds += 1
            named.update(job.region for job in jobs)
            self._n_regions += sum(job.key not in self.measurer.have for job in jobs)
            self.measurer.measure(phase, jobs)
            costs = self.fit(named)
            chosen = self._choose(costs)
        return costs, chosen

    def _reopen(self, plan: Plan) -> bool:
        """Measures the plan's targets that had only a trial; returns whether there are any."""
        targets = frozenset(segment.target for segment in plan.segments) & self.behind
        if targets:
            self.reopen(targets, self._useful)
        return bool(targets)

    def _settle_frames(self, costs: CostModel, contention: Slowdowns, named: set[UnitSet]) -> bool:
        """Measures regions of the plans for many frames at once, until all are measured; returns
        whether any were not. There are none where only the host runs some unit: such a model has
        plans for one frame alone."""
        lanes = {lane for target in costs.targets if (lane := target.lane) is not None}
        for number in range(1, MOST_ROUNDS_OF_FRAMES + 1):
            with self.measurer.spending("plan"):
                phase = f"frames at once, round {number}"
                progress = tell_planning(self.measurer.report, f"planning, {phase}")
                try:
                    plan = plan_throughput(
                        make_problem(self._graph, costs.table),
                        contention=contention.factors,
                        frames_in_flight=usual_in_flight(lanes),
                        dispatches=(Dispatch.OLDEST,),
                        limits=LIMITS,
                        report=progress,
                    )
                except PartitionError:
                    return number > 1
            if plan.interrupted:
                raise KeyboardInterrupt
            plans = (*plan.plans, *(each for of in plan.baseline_plans for each in of))
            jobs = self._segment_jobs(s for each in plans for s in unmeasured(each))
            new = [job for job in jobs if job.key not in self.measurer.have]
            if not new or not self._options.refine:
                return number > 1
            named.update(job.region for job in jobs)
            self._n_regions += len(new)
            self.measurer.measure(phase, jobs)
            costs = self.fit(named)
        return True

    def _measure_beside(self, costs: CostModel) -> Slowdowns:
        """Measures how CPU and accelerators slow each other down, on targets of plans."""
        agent, options = self.measurer.info.cost_version, self._options
        behind = self.behind - self._reopened
        pairs = pairs_to_measure(self._graph, costs, self.specs, behind, options, agent)
        measure_pairs(self.measurer, self._graph, options, pairs)
        self._contention = slowdowns(self._graph, costs.table, self.measurer.corun_rows())
        return self._contention

    def _choose(self, costs: CostModel) -> Chosen:
        with self.measurer.spending("plan"):
            progress = tell_planning(self.measurer.report, f"planning, round {self._rounds + 1}")
            copies = self._options.copies
            chosen = choose(self._graph, costs, self._warm, self._limits(), progress, copies=copies)
        self._warm = chosen.warm
        self.so_far = (costs, chosen.plan)
        if chosen.interrupted:
            raise KeyboardInterrupt
        return chosen

    def _limits(self) -> SearchLimits:
        """Returns the limits of a plan between two rounds: planning takes a tenth of the measuring
        time, or :data:`PLANNING_S`, and at least a moment for each plan."""
        allowed = max(PLANNING_S, PLANNING_SHARE * self.measurer.spent_s["measure"])
        left = allowed - self.measurer.spent_s["plan"]
        seconds = min(LIMITS.seconds, max(left * SHARE_OF_LEFT, LEAST_SECONDS))
        return replace(LIMITS, seconds=seconds)

    def _segment_jobs(self, segments: Iterable[Segment]) -> list[Job]:
        """Returns a job for each segment, each once."""
        return self.region_jobs((segment.units, segment.target) for segment in segments)

    def outcome(
        self,
        *,
        interrupted: bool = False,
        costs: CostModel | None = None,
        plan: Plan | None = None,
        rivals: tuple[Plan, ...] = (),
    ) -> ProfileOutcome:
        return ProfileOutcome(
            fingerprint=self.measurer.fingerprint,
            info=self.measurer.info,
            n_measured=self.measurer.n_measured,
            n_failed=self.measurer.n_failed,
            n_refused=self.measurer.n_refused,
            n_reused=len(self.measurer.reused),
            rounds=self._rounds,
            stable=self._stable,
            seconds=time.monotonic() - self._began,
            n_rows=sum(self._signatures.issuperset(row.members) for row in self.chosen_rows()),
            n_regions=self._n_regions,
            n_exhaustive=self._n_exhaustive,
            potential=self._potential,
            spent_s=dict(self.measurer.spent_s),
            doubts=dict(self.measurer.doubts),
            waited_s=self.measurer.waits.waited_s,
            lost_s=sum(self.measurer.waits.lost_s.values()),
            simulated_s=self.measurer.waits.simulated_s,
            stayed_hot=self.measurer.waits.fruitless,
            interrupted=interrupted,
            costs=costs,
            plan=plan,
            contention=self._contention,
            baselines=rivals,
        )

"""A profiled model for the tests of reports: real data objects, costs of a made-up phone."""

import random
from collections.abc import Iterable
from dataclasses import replace

from nnapi_prof.bundle.plan_set import FrameSchedule, PlanChoice
from nnapi_prof.costs.measurement import Kind, Measurement, Round, Status
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import RegionMatcher, chains, fit
from nnapi_prof.device.protocol import FrameSample, Outcome
from nnapi_prof.execution import report
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import AUTO, CPU, Plan, Preference, Segment, Target
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import baselines, make_problem
from nnapi_prof.reports.data import ReportData
from tests.partition.cases import solve

NPU = tuple(Target.nnapi("sim-npu", p) for p in Preference)
GPU = tuple(Target.nnapi("sim-gpu", p) for p in Preference)
AUTOS = tuple(Target.nnapi(AUTO, p) for p in Preference)
TARGETS = (CPU, *NPU, *GPU, *AUTOS)

INVOCATION_NS = {CPU: 4e3} | dict.fromkeys(NPU, 350000.0) | dict.fromkeys(GPU, 1200000.0)
MACS_PER_NS = {CPU: 12.0} | dict.fromkeys(NPU, 160.0) | dict.fromkeys(GPU, 55.0)
REFUSAL = "conv2d: aten.upsample_bilinear2d cannot run on NNAPI: the driver lacks RESIZE_BILINEAR"


def cnn(n: int, resize_at: tuple[int, ...] = ()) -> UnitGraph:
    """A CNN like MobileNetV2: n units, a residual sum every six; the named units are resizes."""
    values = {"x": TensorType((1, 3, 224, 224))}
    units = []
    for i in range(n):
        side = max(7, 112 >> (i * 5 // n))
        channels = 16 << (i * 5 // n)
        reads = [f"v{i - 1}"] if i else ["x"]
        operation, sizes = "conv2d+relu6", f"3x3 {channels}x{side}x{side}"
        macs = channels * 9 * 24 * side**2
        if i in resize_at:
            operation, sizes, macs = "upsample_bilinear", f"{channels}x{side}x{side}", 0
        elif i % 6 == 5:
            reads.append(f"v{i - 3}")
            operation, sizes, macs = "add", f"{channels}x{side}x{side}", 0
        values[f"v{i}"] = TensorType((1, channels, side, side))
        name, own = f"node_{i}", (f"v{i}",)
        units.append(
            Unit(i, name, operation, (name,), tuple(reads), own, f"sig{i}", macs=macs, sizes=sizes)
        )
    return UnitGraph(tuple(units), values, ("x",), (f"v{n - 1}",))


def region_ns(graph: UnitGraph, region: Iterable[int], target: Target) -> float:
    """What a region takes on the made-up phone."""
    if target in AUTOS:
        return 1.15 * region_ns(graph, region, NPU[AUTOS.index(target)])
    slower = {Preference.SUSTAINED_SPEED: 1.1, Preference.LOW_POWER: 1.7}
    region = tuple(region)
    entering, leaving = graph.boundary(region)
    moved = sum(graph.values[v].n_bytes for v in (*entering, *leaving))
    work = sum(graph.units[u].macs / MACS_PER_NS[target] + 2e4 for u in region)
    per_byte = 0.0 if target == CPU else 0.25
    return INVOCATION_NS[target] + moved * per_byte + work * slower.get(target.preference, 1.0)


def measure(graph: UnitGraph, resize_at: tuple[int, ...]) -> list[Measurement]:
    """Units and chains on every target, 2 % noise, refusals where the NPU lacks the operation."""
    noise = random.Random(0)
    matcher = RegionMatcher(graph)
    regions = [chain for n in (1, 2, 3) for chain in chains(graph, n)]
    rows = []
    for region in regions:
        resizes, units = not set(region).isdisjoint(resize_at), [graph.units[u] for u in region]
        if len(region) > 1 and resizes:
            continue
        entering, leaving = graph.boundary(region)
        for target in TARGETS:
            true = region_ns(graph, region, target)
            samples = tuple(round(true * noise.lognormvariate(0, 0.02)) for _ in range(7))
            refused = resizes and target in NPU
            row = Measurement(
                signature=matcher.signature(region),
                kind=Kind.UNIT if len(region) == 1 else Kind.CHAIN,
                label=" + ".join(unit.label for unit in units),
                members=tuple(unit.signature for unit in units),
                offsets=tuple(u - region[0] for u in region),
                target=target,
                fingerprint="0123456789abcdef",
                agent_version="0.1.0",
                driver_version="" if target == CPU else "1.0",
                status=Status.REFUSED if refused else Status.OK,
                message=REFUSAL if refused else None,
                samples_ns=() if refused else samples,
                compile_ns=None if refused else 2_000_000,
                input_bytes=sum(graph.values[v].n_bytes for v in entering),
                output_bytes=sum(graph.values[v].n_bytes for v in leaving),
                simulated=True,
                clock="simulated",
                measured_at="2024-05-01T12:00:00.000+00:00",
            )
            rows.append(row)
    return rows


def run_of(graph: UnitGraph, plans: Iterable[Plan], model: str) -> report.RunReport:
    """Every plan run nine times on the made-up phone."""
    noise = random.Random(1)
    runs = []
    for plan in plans:
        timings = []
        for i, s in enumerate(plan.segments):
            true = region_ns(graph, s.units, s.target)
            samples = tuple(round(true * noise.lognormvariate(0, 0.02)) for _ in range(9))
            label, key, ns = f"{len(s.units)} units", s.target.key, s.predicted_ns
            timings.append(report.SegmentTiming(i, key, label, ns, samples, compile_ns=5_000_000))
        total = tuple(sum(t.samples_ns[i] for t in timings) for i in range(9))
        runs.append(report.PlanRun(plan, total, tuple(timings)))
    return report.RunReport(
        model=model,
        device="simulated npu-phone",
        fingerprint="0123456789abcdef",
        simulated=True,
        created_at="2024-05-01T12:00:00Z",
        runs=tuple(runs),
        checks=(report.OutputCheck("output_0", (1, 1000), 3.1e-6, 4.2e-7, 1e-4),),
        notes=("outputs compared after one run",),
    )


def sample(n: int = 65, resize_at: tuple[int, ...] = (20, 41), model: str = "net.pt") -> ReportData:
    graph = cnn(n, resize_at)
    rows = measure(graph, resize_at)
    costs: CostModel = fit(graph, rows)
    plan = solve(graph, costs)
    rivals = baselines(make_problem(graph, costs.table))
    return ReportData(
        model=model,
        graph=graph,
        cost_model=costs,
        measurements=tuple(rows),
        plan=plan,
        baselines=rivals,
        run=run_of(graph, (plan, *rivals), model),
        device_info={
            "phone": "npu-phone",
            "abi": "x86_64",
            "cpus": 8,
            "cpu_max_khz": [2_800_000, None],
            "properties": {"ro.product.model": "Simulated NPU phone"},
            "accelerators": [
                {"name": "sim-npu", "type": "ACCELERATOR", "version": "1.0", "feature_level": 30}
            ],
        },
        notes=("the shape of input x (1x3x224x224) is a guess",),
    )


def split(data: ReportData) -> ReportData:
    """With a plan of two segments: the first half of the units on the NPU, the rest on the CPU."""
    units = tuple(range(len(data.graph.units)))
    half = len(units) // 2
    segments = tuple(
        Segment(own, target, region_ns(data.graph, own, target), f"a split: {target}")
        for own, target in ((units[:half], NPU[1]), (units[half:], CPU))
    )
    return replace(data, plan=replace(data.plan, segments=segments))


def three_segments(n: int, interval_ns: tuple[float, float] | None = None, **last: bool) -> Plan:
    """Makes a plan of n units, the fifth of which the NPU refuses: it stays on the CPU, between
    two segments on the NPU; ``last`` are fields of the last one."""
    segments = (
        Segment((0, 1, 2, 3), NPU[1], 2e6, "fastest: the first four", measured=True),
        Segment((4,), CPU, 1e6, "stays on the CPU: sim-npu refuses it", interval_ns=interval_ns),
        Segment(tuple(range(5, n)), NPU[1], 3e6, "fastest: the rest", **last),
    )
    return Plan("dp", segments, simulated=True)


def measured_on_hardware(data: ReportData) -> ReportData:
    """The same data as if a phone had given them."""
    return replace(
        data,
        cost_model=replace(data.cost_model, simulated=False),
        measurements=tuple(replace(row, simulated=False) for row in data.measurements),
        plan=replace(data.plan, simulated=False),
        run=replace(data.run, simulated=False) if data.run else None,
    )


def hot(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """The same measurements with rounds: clocks and temperatures, some rounds throttled."""
    items = []
    for i, m in enumerate(measurements):
        throttled, half, mc = i % 29 == 28, len(m.samples_ns) // 2, 30_000 + 20 * i
        khz = 2_800_000, 1_400_000 if throttled else 2_700_000
        first = Round(half, khz, (mc, mc + 500), throttled)
        rest, again = len(m.samples_ns) - half, 0 if throttled else None
        second = Round(rest, (2_800_000, 2_800_000), (mc + 200, mc + 700), False, again)
        at = f"2024-05-01T12:{i // 60 % 60:02d}:{i % 60:02d}.000+00:00"
        items.append(replace(m, rounds=(first, second), measured_at=at))
    return tuple(items)


def ran_at_once(data: ReportData, n: int = 30, ms: int = 1_000_000) -> ReportData:
    """The split plan with frames at once, n in each of two rounds: 2 ms on the NPU, then 3 ms on
    the CPU, a frame each 3 ms; the last one failed."""
    spans, samples = [], []
    for frame in range(2 * n):
        begin = 1_000 * ms + 3 * ms * frame
        spans.append(report.LaneSpan("sim-npu", 0, 0, frame, begin, begin + 2 * ms))
        spans.append(report.LaneSpan("cpu", 0, 1, frame, begin + 2 * ms, begin + 5 * ms))
        outcome = Outcome.FAILED if frame == 2 * n - 1 else Outcome.SAME
        samples.append(FrameSample(0, outcome, begin, begin + 5 * ms))
    whole = (PlanChoice(0, share=1.0),)
    way = FrameSchedule("mixture of plans", whole, 2, predicted_per_second=330.0)
    run = report.FrameScheduleRun(way, tuple(samples), tuple(spans), (n, n))
    return replace(data, run=replace(data.run, frames=(run,)))


def poisoned(data: ReportData, evil: str) -> ReportData:
    """The same data, where models, devices and people call everything so."""
    accelerator = dict.fromkeys(("name", "type", "version", "feature_level"), evil)
    units = tuple(replace(u, operation=evil, sizes="", name=evil) for u in data.graph.units)
    return replace(
        data,
        model=evil,
        graph=replace(data.graph, units=units),
        plan=replace(data.plan, segments=tuple(replace(s, why=evil) for s in data.plan.segments)),
        run=replace(data.run, device=evil, checks=(report.OutputCheck(evil, (1,), 0, 0, 1),)),
        device_info={evil: evil, "accelerators": [accelerator]},
        notes=(evil,),
    )

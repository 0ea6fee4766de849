"""A client of a device that does not exist: latencies by formula, faults on demand."""

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from nnapi_prof.costs.measurement import Round, Status
from nnapi_prof.device import protocol
from nnapi_prof.device.protocol.actions import ActionFlag
from nnapi_prof.device.protocol.request import Request
from nnapi_prof.errors import AgentError
from nnapi_prof.execution.profile import Progress
from nnapi_prof.nnapi.container import ContainerKind, read_container

CPU_OPERATION_NS = 100_000
NPU_INVOCATION_NS = 150_000
NPU_OPERATION_NS = 10_000
NPU = protocol.Accelerator("npu", "ACCELERATOR", "1.0", 29)


def info(*accelerators: protocol.Accelerator, agent: str = "test-1") -> protocol.AgentInfo:
    nnapi = protocol.NnapiInfo("libneuralnetworks.so", None, (), accelerators)
    return protocol.AgentInfo(
        1, agent, "x86_64", "linux", {}, 30, 2, (None, None), None, True, "p", "id", nnapi
    )


@dataclass(frozen=True)
class Action:
    """What the formula needs of an action of a request."""

    id: int
    on_nnapi: bool
    n_operations: int
    group: int


def read_actions(request: bytes) -> list[Action]:
    """The actions of a request that have a result, by PROTOCOL.md; each has one segment."""
    sections = read_container(request, ContainerKind.REQUEST)
    actions = []
    data = sections["ACTN"]
    schedule = struct.Struct("<IIIIIIIQQQIIIQIIIQQ")
    at = 4
    for _ in range(_word(data, 0)):
        fields = schedule.unpack_from(data, at)
        at += schedule.size
        for words in (3, 2, 1):  # weights, inputs, tensors that are kept
            at += 4 * (1 + words * _word(data, at))
        offset, length = fields[-2:]
        bundle = read_container(sections["DATA"][offset : offset + length], ContainerKind.BUNDLE)
        n_plans, _name, n_segments, engine = struct.unpack_from("<4I", bundle["PLAN"])
        assert (n_plans, n_segments) == (1, 1)
        n_operations = _word(bundle["DATA"], 12)
        if not fields[2] & ActionFlag.GAUGE:
            actions.append(Action(fields[0], engine == 1, n_operations, fields[4]))
    return actions


def _word(data: bytes, at: int) -> int:
    return struct.unpack_from("<I", data, at)[0]


def interrupt_at(done: int, phase: str = "") -> Callable[[Progress], None]:
    """Ctrl-C when so many jobs are done of a phase that begins with ``phase``."""

    def report(progress: Progress) -> None:
        if progress.phase.startswith(phase) and progress.done == done:
            raise KeyboardInterrupt

    return report


@dataclass
class ScriptedClient:
    """Answers with latencies by formula; dies after ``dies_after`` results in all."""

    device: protocol.AgentInfo = field(default_factory=lambda: info(NPU))
    dies_after: int | None = None
    requests: list[int] = field(default_factory=list)
    """Number of actions of each request."""
    groups: list[list[int]] = field(default_factory=list)
    """The groups of each request's actions."""
    throttled: tuple[bool, ...] = ()
    """Of the rounds of every result; each has three runs, ten times as long when throttled."""
    n_results: int = 0
    closed_early: int = 0

    def info(self) -> protocol.AgentInfo:
        return self.device

    def run(self, request: Request) -> Generator[protocol.Event, None, None]:
        actions = read_actions(request.content)
        self.requests.append(len(actions))
        self.groups.append([action.group for action in actions])
        try:
            for action in actions:
                yield protocol.Start(action.id)
                if self.n_results == self.dies_after:
                    raise AgentError("sim: the agent was killed by signal 9", serial="sim")
                self.n_results += 1
                yield _result(action, self.throttled)
            yield protocol.End(len(actions), len(actions), 0)
        except GeneratorExit:
            self.closed_early += 1
            raise


def _result(action: Action, throttled: tuple[bool, ...]) -> protocol.ActionResult:
    npu, cpu = (NPU_INVOCATION_NS, NPU_OPERATION_NS), (0, CPU_OPERATION_NS)
    invocation, each = npu if action.on_nnapi else cpu
    ns = invocation + each * action.n_operations
    rounds = tuple(Round(3, throttled=hot) for hot in throttled)
    samples = tuple(ns * (10 if each.throttled else 1) for each in rounds for _ in range(3))
    samples = samples or (ns, ns, ns)
    timing = protocol.SegmentSamples(1000, samples, (), (), None)
    unknown = (None,) * 4
    return protocol.ActionResult(
        action.id, Status.OK, *unknown, "simulated", (timing,), samples, ns, 1,
        (None, None), (None, None), (), rounds,
    )  # fmt: skip

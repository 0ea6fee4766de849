"""Queues of the runtime library: frames give what a run gives, in order, by the set's rule."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import runtime_bundle, runtime_plans
from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import HOST, Plan, Segment
from tests.library import embedding
from tests.library.embedding import ASYNC, BURST, BUSY, MIXTURE, POINTERS, RuntimeFailure

N_BYTES = 40
"""Of the sample's output."""


def mixture(bundle: Bundle, shares: Sequence[float], plans: Sequence[int] = (0, 1, 2)) -> Bundle:
    """The bundle as a mixture of so many of its plans."""
    choices = tuple(
        PlanChoice(plan, share=share) for plan, share in zip(plans, shares, strict=False)
    )
    return dataclasses.replace(bundle, plan_set=PlanSet(SelectionRule.MIXTURE, choices))


@pytest.fixture(scope="module")
def mixed(opened, sample):
    return opened(mixture(sample.bundle, (0.45, 0.25, 0.3)))


def images(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    return [rng.standard_normal((1, 3, 12, 10), np.float32) for _ in range(n)]


@settings(max_examples=30)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_rule_is_that_of_plan_sets(opened, sample, parts, order):
    plans = order.sample(range(4), len(parts))
    bundle = mixture(sample.bundle, [part / sum(parts) for part in parts], plans)
    runtime = opened(bundle)
    assert [plan.name for plan in runtime_plans(bundle)] == runtime.plans()
    for frame in [*range(300), *(order.randrange(2**40) for _ in range(100))]:
        assert runtime.select(frame) == bundle.plan_set.select(frame), frame
    for plan, part in zip(plans, parts, strict=True):
        share = runtime.library.nnp_bundle_share(runtime.bundle, plan)
        assert share == part / sum(parts)
    runtime.library.nnp_bundle_close(runtime.bundle)


@pytest.mark.parametrize("flags", [0, BURST, ASYNC, POINTERS])
@pytest.mark.parametrize("frames", [1, 4, 0])
def test_frames_are_runs_bit_by_bit(mixed, frames, flags):
    inputs = images(24)
    models = [mixed.model(plan, flags) for plan in range(3)]
    queue = mixed.queue(flags=flags, frames=frames)
    assert {lane.name for lane in queue.lanes()} == {b"nnapi-reference", b"cpu", b"nnapi"}
    room = frames or 12  # four a lane
    outputs = [np.zeros(N_BYTES, np.uint8) for _ in inputs]
    submitted = 0
    for number, image in enumerate(inputs):
        for ahead in range(submitted, min(number + room, len(inputs))):
            if ahead % 3 == 0:  # the queue's own buffers
                queue.write_input(0, inputs[ahead].tobytes())
                queue.submit(None)
            else:
                queue.submit([inputs[ahead]], [outputs[ahead]])
            submitted = ahead + 1
        if submitted < len(inputs):
            with pytest.raises(RuntimeFailure) as busy:
                queue.submit([inputs[submitted]])
            assert busy.value.status == BUSY
        frame = queue.wait()
        assert (frame.number, frame.plan) == (number, mixed.select(number))
        (expected,) = models[frame.plan].run([image], [N_BYTES])
        own = number % 3 == 0
        assert (queue.output(0, N_BYTES) if own else outputs[number].tobytes()) == expected
        spans = queue.spans([3, 1, 1][frame.plan])
        assert all(span.begin_ns <= span.end_ns < embedding.UNKNOWN_NS for span in spans)
        assert [span.end_ns for span in spans[:-1]] <= [span.begin_ns for span in spans[1:]]
        assert frame.latency_ns >= spans[-1].end_ns - spans[0].begin_ns
    lanes = queue.lanes()
    plans = [mixed.select(number) for number in range(len(inputs))]
    assert sum(lane.n_segments for lane in lanes) == sum([3, 1, 1][plan] for plan in plans)
    with pytest.raises(RuntimeFailure) as busy:
        queue.wait(1000)
    assert busy.value.status == BUSY


def test_one_plan_is_a_pipeline(opened, mixed, sample):
    """Also of a bundle that is a mixture, and of a file from before there were any."""
    old = runtime_bundle(sample.bundle)
    assert b"MIXT" not in old
    runtime = opened(old)
    assert runtime.library.nnp_bundle_share(runtime.bundle, 0) == 0
    for queue in (runtime.queue(), runtime.queue(MIXTURE), mixed.queue(0)):
        image = sample.image.numpy()
        for _ in range(3):
            queue.submit([image])
        for number in range(3):
            frame = queue.wait()
            assert (frame.number, frame.plan) == (number, 0)
            assert [span.lane for span in queue.spans(3)] == [0, 1, 2]
            values = torch.frombuffer(bytearray(queue.output(0, N_BYTES)), dtype=torch.float32)
            torch.testing.assert_close(values[None], sample.expected, rtol=1e-5, atol=1e-6)


def test_a_lane_for_what_fell_back(opened, sample):
    """The plan "elsewhere" names an accelerator that is not there."""
    runtime = opened(mixture(sample.bundle, (0.5, 0.5), (3, 2)))
    with pytest.raises(RuntimeFailure, match="some-other-npu"):
        runtime.queue()
    queue = runtime.queue(flags=embedding.CPU_FALLBACK)
    assert [lane.name for lane in queue.lanes()] == [b"cpu"]
    queue.submit([sample.image.numpy()])
    assert queue.wait().number == 0


def test_a_mixture_that_needs_pytorch_is_refused(sample):
    first = sample.bundle.plan.segments[0]
    host = Plan("dp", (Segment(first.units, HOST, 1.0, "no engine", estimated=True),), False)
    bundle = dataclasses.replace(sample.bundle, plans=(*sample.bundle.plans, host))
    with pytest.raises(UsageError, match=r"no engine"):
        runtime_bundle(mixture(bundle, (0.9, 0.1), (0, 4)))
    assert b"MIXT" in runtime_bundle(mixture(bundle, (0.9, 0.1), (0, 1)))

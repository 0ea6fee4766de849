"""Sets of plans: the library chooses as their rules do, for phones and frame by frame."""

import ctypes
import dataclasses
import struct
from collections.abc import Iterable, Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnapi_prof.bundle import Bundle, accelerators_of
from nnapi_prof.bundle import deployment as writer
from nnapi_prof.bundle.deployment import runtime_bundle, runtime_plans
from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule, phone_of
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import HOST, Plan, Segment
from tests.emulator.nnapi import Nnapi
from tests.library import embedding
from tests.library.embedding import MIXTURE, Runtime, RuntimeFailure

BY_PHONE = 2**32 - 2
BUILDS, SOCS = ("maker/one:11", "maker/two:12", ""), ("sm1", "sm2", "")


class PhoneNames(ctypes.Structure):
    _fields_ = [("build", ctypes.c_char_p), ("soc", ctypes.c_char_p)]


def by_phone(bundle: Bundle, choices: Iterable[PlanChoice]) -> Bundle:
    plan_set = PlanSet(SelectionRule.PHONES, tuple(choices))
    return dataclasses.replace(bundle, plan_set=plan_set)


def chosen(runtime: Runtime, build: str, soc: str) -> int:
    phone = PhoneNames(build.encode(), soc.encode() or None)
    plan = ctypes.c_uint32(77)
    emulator = ctypes.c_char_p(str(runtime.emulator).encode())
    runtime.check(
        *("nnp_bundle_plan_of_phone", runtime.bundle),
        *(ctypes.byref(phone), emulator, ctypes.byref(plan)),
    )
    return plan.value


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_the_rule_of_phones_is_that_of_plan_sets(opened, sample, emulator_library, data):
    there = [*Nnapi(emulator_library).levels().items()]
    nnapi = phone_of({}, there).keys
    keys = [f"build:{b}" for b in BUILDS if b] + [f"soc:{s}" for s in SOCS if s] + [*nnapi]
    keys += ["nnapi:nnapi-reference/9", "nnapi-reference/30"]  # of nobody
    plans = data.draw(st.permutations(range(4)))
    homes = {key: data.draw(st.integers(-1, 3)) for key in keys}
    others = data.draw(st.sampled_from([n for n in range(4) if n != 3]))
    choices = []
    for plan in plans:
        own = [key for key, home in homes.items() if home == plan]
        needed = () if plan == others else tuple(accelerators_of(sample.bundle.plans[plan]))
        choices.append(PlanChoice(plan, keys=(*own, *[""] * (plan == others)), accelerators=needed))
    table = [*sample.bundle.plans]
    # The plan of all others needs no accelerator.
    table[others] = dataclasses.replace(sample.bundle.plans[2], name="others")
    bundle = by_phone(dataclasses.replace(sample.bundle, plans=tuple(table)), choices)
    runtime = opened(bundle)
    assert runtime.plans() == [plan.name for plan in runtime_plans(bundle)]
    for build in BUILDS:
        for soc in SOCS:
            properties = {"ro.build.fingerprint": build, "ro.soc.model": soc}
            phone = phone_of({k: v for k, v in properties.items() if v}, there)
            expected = bundle.plans[bundle.plan_set.select(phone=phone)].name
            assert runtime.plans()[chosen(runtime, build, soc)] == expected
    model = runtime.model(BY_PHONE, flags=8)  # on this host only its accelerators are known
    expected_plan = bundle.selected_plan(phone=phone_of({}, there))
    assert len(model.segments()) == len(expected_plan.segments)
    queue = runtime.queue(flags=8)
    queue.submit([sample.image.numpy()])
    assert runtime.plans()[queue.wait().plan] == expected_plan.name
    runtime.library.nnp_bundle_close(runtime.bundle)


def test_as_many_threads_as_names(opened, sample, monkeypatch):
    of_two = PlanChoice(0, keys=("soc:a", "soc:b"), threads={"soc:b": 4})
    bundle = by_phone(sample.bundle, [of_two, PlanChoice(2, keys=("",))])
    sections = writer._Writer(bundle, runtime_plans(bundle)).sections()
    assert sections["PTHR"] == struct.pack("<4I", 1, 2, 0, 4)
    opened(bundle)
    for words in ((2, 2, 0, 4), (1, 1, 4), (1, 2, 0), (1, 2, 0, 4, 4)):
        damaged = {"PHON": sections["PHON"], "PTHR": struct.pack(f"<{len(words)}I", *words)}
        monkeypatch.setattr(writer._Writer, "_phones", lambda _, section=damaged: section)
        with pytest.raises(RuntimeFailure, match="PTHR"):
            opened(bundle)


def test_other_bundles_run_plan_0(opened, sample):
    content = runtime_bundle(sample.bundle)
    assert b"PHON" not in content
    runtime = opened(content)
    assert chosen(runtime, "maker/one:11", "sm1") == 0
    with pytest.raises(RuntimeFailure, match="bundle or plan is NULL"):
        runtime.check("nnp_bundle_plan_of_phone", runtime.bundle, None, None, None)
    model = runtime.model(BY_PHONE)
    assert len(model.segments()) == len(sample.bundle.plans[0].segments)


@pytest.mark.parametrize("word", range(6))
def test_a_damaged_section_is_refused(opened, sample, word, monkeypatch):
    """Version, the plan of others, number of names, a name, its plan, and what follows."""
    write = writer._Writer._phones

    def damaged(self):
        section = write(self)["PHON"]
        at = 4 * word
        return {"PHON": section[:at] + b"\xff\xff\xff\xff" + section[at + 4 :]}

    monkeypatch.setattr(writer._Writer, "_phones", damaged)
    choices = [PlanChoice(0, keys=("soc:a",)), PlanChoice(2, keys=("",))]
    bundle = by_phone(sample.bundle, choices)
    with pytest.raises(RuntimeFailure, match="PHON"):
        opened(bundle)


# ---- queues: frames by the rule of the set; test_queue.c has their results ----------------------

N_BYTES = 40
"""Of the sample's output."""


def mixture(bundle: Bundle, shares: Sequence[float], plans: Sequence[int] = (0, 1, 2)) -> Bundle:
    """The bundle as a mixture of so many of its plans."""
    pairs = zip(plans, shares, strict=False)
    choices = tuple(PlanChoice(plan, share=share) for plan, share in pairs)
    return dataclasses.replace(bundle, plan_set=PlanSet(SelectionRule.MIXTURE, choices))


@pytest.fixture(scope="module")
def mixed(opened, sample):
    return opened(mixture(sample.bundle, (0.45, 0.25, 0.3)))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_rule_of_mixtures_is_that_of_plan_sets(opened, sample, parts, order):
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

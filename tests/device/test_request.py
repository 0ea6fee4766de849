"""Requests: their bytes, the rules, and which actions share a group."""

import hashlib
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.costs import Mode, SegmentFlag
from nnapi_prof.device.protocol import DriverFacts, actions
from nnapi_prof.device.protocol.actions import ActionSpec, SegmentSpec, TensorSource, Timing
from nnapi_prof.device.protocol.request import Patience, RequestBuilder
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import CPU, Engine, Preference, Target
from nnapi_prof.nnapi.container import read_container
from tests.agent import packer
from tests.agent.packer import words

TensorSpec = actions.TensorSpec
FLOAT, FAST = 3, Preference.FAST_SINGLE_ANSWER


def unpacked(raw: bytes) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Sections of a request, and those of its only bundle."""
    sections = read_container(raw, 1)
    return sections, read_container(sections.pop("DATA"), 3)


@pytest.mark.parametrize(
    ("mode", "pointers", "cores", "flags"),
    [
        (Mode.SYNC, False, actions.ALL_CORES, 0),
        (Mode.BURST, True, actions.BIG_CORES, packer.BURST | packer.POINTERS | packer.COPIES),
        (Mode.ASYNC, False, 0xF0, packer.ASYNC),
    ],
)
def test_the_bytes_are_those_packed_by_hand(mode, pointers, cores, flags):
    """From PROTOCOL.md, by tests/agent/packer.py, with another value in each field."""
    ours, theirs = RequestBuilder(), packer.Request()
    data = [b"blob", b"weight of one", b"and of another", b""]
    for blob in data:
        assert ours.add_blob(blob) == theirs.blob(blob)
    for model, used in ((b"one model", (2, 1)), (b"another one", (1,)), (b"the third", ())):
        added = ours.add_model(model, [data[blob] for blob in used])
        assert added == theirs.model(model, used)
    tensors = [
        (TensorSource.BLOB, (2, 3), 3, True),
        (TensorSource.RANDOM, (0xFFFFFFFF,), 0xFFFFFFFE, False),
        (TensorSource.ZERO, (), 0, False),
        (TensorSource.SEGMENT, (4,), 0, False),
        (TensorSource.SEGMENT, (5,), 0, True),
        (TensorSource.SEGMENT, (6, 7), 0, True),
    ]
    limits = dict(threads=3, memory_kb=14, group=15)
    ours.add_action(
        ActionSpec(
            77,
            tuple(TensorSpec(FLOAT, dims, source, *rest) for source, dims, *rest in tensors),
            (
                SegmentSpec(Engine.CPU, 0, (0, 1, 1), (3,)),
                SegmentSpec(Engine.NNAPI, 1, (3,), (4,), "gpu é", FAST, SegmentFlag.RELAXED),
                SegmentSpec(Engine.NNAPI, 2, (2,), (5,), "gpu é"),
            ),
            Timing(4, 5, 2**64 - 1, 7, 8, 2, 9, 11, 2**63, 12, 13),
            flags=actions.ActionFlag(flags & packer.COPIES),
            mode=mode,
            pointers=pointers,
            cpu_mask=cores,
            **limits,
        )
    )
    timing = dict(warmup=(4, 5), warmup_ns=2**64 - 1, warm_ns=7, spin_ns=8, rounds=2, runs=(9, 11))
    timing |= dict(budget_ns=2**63, cooldown_ms=12, timeout_ms=13)
    theirs.action(
        [packer.Tensor(*each) for each in tensors],
        [
            packer.Segment(packer.CPU, 0, (0, 1, 1), (3,)),
            packer.Segment(packer.NNAPI, 1, (3,), (4,), "gpu é", FAST.value, True),
            packer.Segment(packer.NNAPI, 2, (2,), (5,), "gpu é"),
        ],
        **dict(id=77, flags=flags, mask=cores),
        **timing,
        **limits,
    )
    (mine, bundle), (hand, hand_bundle) = unpacked(ours.build()), unpacked(theirs.pack())
    assert (bundle, mine) == (hand_bundle, hand)
    names = [hashlib.sha256(blob).hexdigest() for blob in data]
    assert dict(ours.blobs) == dict(zip(names, data, strict=True))


def test_actions_follow_one_another():
    """With an equal bundle once, and each of the others where 8 divides its place."""
    builder = one_model()
    for number, segment in enumerate([SEGMENT, SEGMENT, replace(SEGMENT, accelerator="npu-1")]):
        builder.add_action(ActionSpec(number, (IN, OUT), (segment,)))
    sections = read_container(builder.build(), 1)
    size = (len(sections["ACTN"]) - 4) // 3
    rows = [sections["ACTN"][4 + size * n : 4 + size * (n + 1)] for n in range(3)]
    assert struct.unpack_from("<I", sections["ACTN"]) == (3,)
    assert [struct.unpack_from("<I", each)[0] for each in rows] == [0, 1, 2]
    places = [struct.unpack_from("<QQ", each, 84) for each in rows]
    assert places[0] == places[1] != places[2]
    for offset, length in places:
        assert offset % 8 == 0
        read_container(sections["DATA"][offset : offset + length], 3)


@pytest.mark.parametrize(
    ("waits", "silence_s"),
    [
        ([], 0),
        ([(5000, 200, 0), (4000, 3000, 0)], 7),
        ([(5000, 200, 1), (4000, 200, 1), (9000, 0, 0)], 9.2),
    ],
)
def test_silence_is_that_of_the_longest_group(waits, silence_s):
    """Each may time out once for each action, and cool down once."""
    builder = one_model()
    for number, (timeout_ms, cooldown_ms, group) in enumerate(waits):
        timing = Timing(timeout_ms=timeout_ms, cooldown_ms=cooldown_ms)
        builder.add_action(ActionSpec(number, (IN, OUT), (SEGMENT,), timing, group=group))
    assert builder.request().silence_s == silence_s


def one_model() -> RequestBuilder:
    builder = RequestBuilder()
    builder.add_model(b"model", [b"weights"])
    return builder


IN, OUT = TensorSpec(FLOAT, (1,), TensorSource.RANDOM, 7), TensorSpec(FLOAT, (1,))
SEGMENT = SegmentSpec(Engine.CPU, 0, (0,), (1,))

SIX, ONCE = Timing(min_runs=6, max_runs=6), Timing(min_runs=1, max_runs=1)
BLOB_5, UNTIMED = TensorSpec(FLOAT, (), TensorSource.BLOB, 5), actions.ActionFlag.UNTIMED
ON_CPU = SegmentSpec(Engine.CPU, 0, (0,), (2,))


def on_nnapi(accelerator):
    return SegmentSpec(Engine.NNAPI, 0, (0,), (2,), accelerator)


def corun(*segments, flags=actions.ActionFlag.CORUN, timing=SIX):
    """Segments side by side."""
    return ActionSpec(1, (IN, OUT, OUT), segments, timing, flags | actions.ActionFlag.CORUN)


def test_a_request_tells_what_those_before_it_saw():
    def told(*patience):
        return read_container(RequestBuilder(Patience(*patience)).build(), 1)

    assert told()["HEAD"] == words(5, 0, 0xFFFFFFFF, 0)
    drivers = (DriverFacts("npu", 2, "memfd"), DriverFacts(None, 4, None))
    sections = told(1500, (1_800_000, None), drivers)
    assert sections["HEAD"] == words(5, 0, 1500, 2, 1_800_000, 0)
    assert sections["STRS"] == packer.texts(["npu"])
    assert sections["DRVS"] == words(2, 0, 2, 3, 0xFFFFFFFF, 4, 0)


@pytest.mark.parametrize(
    ("action", "rule"),
    [
        (ActionSpec(1, (IN, OUT), ()), "no segments"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(timeout_ms=0)), "timeout of 0 ms"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(min_runs=9, max_runs=8)), "runs from 9 to 8"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(max_runs=100_001)), "100001"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(warmup_min=3)), "warm-up runs from 3 to 2"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(rounds=0)), "0 rounds"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), flags=UNTIMED), "without timing"),
        (ActionSpec(1, (IN, OUT), (SegmentSpec(Engine.CPU, 3, (0,), (1,)),)), "model 3 of 1"),
        (ActionSpec(1, (IN,), (SEGMENT,)), "names tensor 1"),
        (ActionSpec(1, (IN, OUT), (SegmentSpec(Engine.CPU, 0, (1,), ()),)), "before it is"),
        (ActionSpec(1, (IN, OUT), (SEGMENT, SEGMENT)), "a second time"),
        (ActionSpec(1, (IN, OUT), (SegmentSpec(Engine.HOST, 0, (0,), (1,)),)), "runs on host"),
        (ActionSpec(1, (BLOB_5, OUT), (SEGMENT,)), "blob 5"),
        (corun(SEGMENT), "1 segments side by side, 2 to 8"),
        (corun(SEGMENT, ON_CPU), "on one processor"),
        (corun(SEGMENT, on_nnapi("auto")), "own choice is not a processor"),
        (corun(SEGMENT, on_nnapi(None)), "own choice is not a processor"),
        (corun(SEGMENT, on_nnapi("npu"), timing=Timing(min_runs=2, max_runs=3)), "one number"),
        (corun(SEGMENT, SegmentSpec(Engine.NNAPI, 0, (1,), (2,), "npu")), "writes"),
        (corun(SEGMENT, on_nnapi("npu"), flags=UNTIMED, timing=ONCE), "are timed"),
    ],
)
def test_a_broken_rule_is_named(action, rule):
    with pytest.raises(SerializationError, match=rule):
        one_model().add_action(action)


def test_an_action_id_is_used_once():
    builder = one_model()
    builder.add_action(ActionSpec(4, (IN, OUT), (SEGMENT,)))
    with pytest.raises(SerializationError, match="action id 4 is used twice"):
        builder.add_action(ActionSpec(4, (IN, OUT), (SEGMENT,)))


def test_a_group_is_together_alike_and_small():
    def action(number, group, rounds=2):
        return ActionSpec(number, (IN, OUT), (SEGMENT,), Timing(rounds=rounds), group=group)

    builder = one_model()
    builder.add_action(action(1, 1))
    with pytest.raises(SerializationError, match="action 2 has other rounds or another cool-down"):
        builder.add_action(action(2, 1, rounds=3))
    builder.add_action(action(2, 1))
    builder.add_action(action(3, 2))
    with pytest.raises(SerializationError, match="action 4 is of group 1, which ended before"):
        builder.add_action(action(4, 1))
    for number in range(31):
        builder.add_action(action(100 + number, 2))
    with pytest.raises(SerializationError, match="one too many in its group, which may have 32"):
        builder.add_action(action(5, 2))
    for number in range(40):
        builder.add_action(action(200 + number, 0, rounds=number + 1))


def test_segments_on_the_targets_of_a_plan():
    named = SegmentSpec.on(Target.nnapi("npu", Preference.LOW_POWER), 0, (0,), (1,))
    assert (named.engine, named.accelerator) == (Engine.NNAPI, "npu")
    assert named.preference is Preference.LOW_POWER
    assert SegmentSpec.on(CPU, 0, (0,), (1,)) == SEGMENT

    auto = SegmentSpec.on(Target.nnapi("auto", Preference.LOW_POWER), 0, (0,), (1,))
    builders = one_model(), one_model()
    builders[0].add_action(ActionSpec(1, (IN, OUT), (auto,)))
    builders[1].add_action(ActionSpec(1, (IN, OUT), (replace(auto, accelerator=None),)))
    assert builders[0].build() == builders[1].build()


def test_equal_models_and_blobs_are_stored_once():
    builder = RequestBuilder()
    assert builder.add_model(b"m", [b"a", b"b"]) == builder.add_model(b"m", [b"a", b"b"]) == 0
    assert builder.add_model(b"m", [b"b", b"a"]) == 1
    assert list(builder.blobs.values()) == [b"a", b"b"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, actions.MAX_GROUP_BYTES)), max_size=80))
def test_groups(requested):
    groups = actions.Groups()
    numbers = [groups.number(key, weight) for key, weight in requested]
    assert numbers == sorted(numbers) and all(number > 0 for number in numbers)
    for number in set(numbers):
        members = [a for a, n in zip(requested, numbers, strict=True) if n == number]
        assert len({key for key, _ in members}) == 1
        assert len(members) <= actions.MAX_GROUP
        weight = sum(w for _, w in members) * actions.WEIGHT_COPIES
        assert weight <= actions.MAX_GROUP_BYTES or len(members) == 1


def test_alternatives_stay_together_where_they_can():
    groups = actions.Groups()
    assert [groups.number("a", 1000) for _ in range(actions.MAX_GROUP)] == [1] * actions.MAX_GROUP
    assert groups.number("a", 1000) == 2
    assert groups.number("b", 1000) == 3
    assert groups.number("a", 1000) == 4  # a group that ended does not begin again

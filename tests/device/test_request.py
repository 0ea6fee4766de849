"""Requests: round trip through a reader written here from PROTOCOL.md, and the rules."""

import hashlib
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.costs import Mode, SegmentFlag
from nnapi_prof.device.protocol import DriverFacts
from nnapi_prof.device.protocol.actions import (
    ALL_CORES,
    BIG_CORES,
    ActionFlag,
    ActionSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.protocol.request import Patience, RequestBuilder
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import CPU, Engine, Preference, Target
from nnapi_prof.nnapi.container import read_container

FLOAT = 3


class Words:
    """Reads little-endian numbers one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def u32(self) -> int:
        (value,) = struct.unpack_from("<I", self.data, self.at)
        self.at += 4
        return value

    def u64(self) -> int:
        low = self.u32()
        return low | self.u32() << 32

    def u32s(self) -> list[int]:
        return [self.u32() for _ in range(self.u32())]

    def pairs(self) -> list[tuple[int, int]]:
        return [(self.u32(), self.u32()) for _ in range(self.u32())]

    def take(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]


def read_texts(words: Words) -> list[str]:
    texts = []
    for _ in range(words.u32()):
        n = words.u32()
        texts.append(words.take(n).decode())
        assert words.take(-n % 4) == bytes(-n % 4)
    return texts


def read_request(data: bytes) -> dict[str, Any]:
    """An independent reader of section 3."""
    sections = read_container(data, 1)
    head = Words(sections["HEAD"])
    assert (head.u32(), head.u32()) == (5, 0)
    patience = (head.u32(), head.u32s())
    blobs = Words(sections["BLOB"])
    read_blobs = [(blobs.u64(), blobs.take(32).hex()) for _ in range(blobs.u32())]
    strings = Words(sections.get("STRS", bytes(4)))
    texts = read_texts(strings)
    drivers = Words(sections.get("DRVS", bytes(4)))
    read_drivers = []
    for _ in range(drivers.u32()):
        name = drivers.u32()
        name = None if name == 0xFFFFFFFF else texts[name]
        read_drivers.append((name, drivers.u32(), drivers.u32()))
    actions = Words(sections["ACTN"])
    read_actions = [read_action(actions, sections["DATA"]) for _ in range(actions.u32())]
    for words in (head, blobs, strings, drivers, actions):
        assert words.at == len(words.data)
    items = {"blobs": read_blobs, "actions": [action for action, _ in read_actions]}
    models = [models for _, models in read_actions]
    return items | {"models": models, "patience": patience, "drivers": read_drivers}


def read_action(words: Words, data: bytes) -> tuple[ActionSpec, list[tuple[bytes, list[int]]]]:
    """An action whose segments name the models of its own bundle, and these with their blobs."""
    fields: dict[str, Any] = dict(id=words.u32())
    timing = dict(timeout_ms=words.u32())
    fields |= dict(flags=ActionFlag(words.u32()), memory_kb=words.u32(), group=words.u32())
    timing |= dict(
        warmup_min=words.u32(),
        warmup_max=words.u32(),
        warmup_ns=words.u64(),
        warm_ns=words.u64(),
        spin_ns=words.u64(),
        rounds=words.u32(),
        min_runs=words.u32(),
        max_runs=words.u32(),
        budget_ns=words.u64(),
        cooldown_ms=words.u32(),
    )
    assert (words.u32(), words.u32()) == (0, 0)  # no frames
    offset, length = words.u64(), words.u64()
    assert offset % 8 == 0
    weights = {}
    for _ in range(words.u32()):
        blob = words.u32()
        weights[words.u64()] = blob
    inputs = words.pairs()
    kept_tensors = words.u32s()
    sections = read_container(data[offset : offset + length], 3)
    head, conditions = Words(sections["HEAD"]), Words(sections["COND"])
    assert head.u32() == conditions.u32() == 1
    mode = list(Mode)[head.u32()]
    cores, mask = conditions.u32(), conditions.u64()
    assert (conditions.u64(), conditions.u64()) == (0, 0)  # no limits
    fields |= dict(
        mode=mode,
        threads=head.u32(),
        cpu_mask=(ALL_CORES, BIG_CORES, mask)[cores],
        pointers=bool(conditions.u32()),
    )
    texts = read_texts(Words(sections["STRS"]))
    rows = Words(sections["TENS"])
    shapes = []
    for _ in range(rows.u32()):
        shapes.append((rows.u32(), tuple(rows.u32s())))
        assert rows.take(8) == bytes(8)
    ends = {}
    for tag in ("INPT", "OUTP"):
        section = Words(sections[tag])
        triples = [(section.u32(), section.u32(), section.u32()) for _ in range(section.u32())]
        ends[tag] = [tensor for _, tensor, _ in triples]
    sources = dict(zip(ends["INPT"], inputs, strict=True))
    tensors = []
    for index, (code, dims) in enumerate(shapes):
        source, value = sources.get(index, (0, 0))
        tensors.append(TensorSpec(code, dims, TensorSource(source), value, index in kept_tensors))
    models, rows = [], Words(sections["MODL"])
    for _ in range(rows.u32()):
        at, size = rows.u64(), rows.u64()
        places = [(rows.u64(), rows.u64()) for _ in range(rows.u32())]
        blobs = [weights[place] for place, _ in places]
        models.append((sections["DATA"][at : at + size], blobs))
    plan = Words(sections["PLAN"])
    assert plan.u32() == 1 and texts[plan.u32()] == ""
    segments = []
    for _ in range(plan.u32()):
        engine, accelerator, preference, flags, model = (plan.u32() for _ in range(5))
        reads, writes = plan.pairs(), plan.pairs()
        segments.append(
            SegmentSpec(
                (Engine.CPU, Engine.NNAPI)[engine],
                model,
                tuple(index for index, _ in reads),
                tuple(index for index, _ in writes),
                None if accelerator == 0xFFFFFFFF else texts[accelerator],
                None if preference == 0xFFFFFFFF else Preference(preference),
                SegmentFlag(flags),
            )
        )
    read = {tensor for segment in segments for tensor in segment.inputs}
    written = [tensor for segment in segments for tensor in segment.outputs]
    assert set(ends["OUTP"]) == {t for t in written if t not in read or tensors[t].keep}
    action = ActionSpec(
        tensors=tuple(tensors), segments=tuple(segments), timing=Timing(**timing), **fields
    )
    return action, models


def words32() -> st.SearchStrategy[int]:
    return st.integers(0, 0xFFFFFFFF)


RUNS = st.integers(1, 100_000)
FLAGS = [ActionFlag(0), ActionFlag.COPIES]


@st.composite
def requests(draw: st.DrawFn) -> tuple[RequestBuilder, list[tuple[bytes, list[bytes]]]]:
    """A builder with valid contents, and the models that went in."""
    builder = RequestBuilder()
    buffers = st.lists(st.binary(max_size=20), max_size=3)
    models = draw(st.lists(st.tuples(st.binary(max_size=40), buffers), min_size=1, max_size=4))
    indices = [builder.add_model(serialized, b) for serialized, b in models]
    n_blobs = len(builder.blobs)
    rounds, cooldown_ms, group = draw(RUNS), draw(words32()), 0
    for number in range(draw(st.integers(0, 3))):
        tensors, segments, ready = [], [], []
        for _ in range(draw(st.integers(1, 4))):
            source = draw(
                st.sampled_from([TensorSource.RANDOM, TensorSource.ZERO, TensorSource.BLOB])
            )
            if source is TensorSource.BLOB and not n_blobs:
                source = TensorSource.ZERO
            value = (
                draw(st.integers(0, n_blobs - 1))
                if source is TensorSource.BLOB
                else draw(words32())
            )
            dims = tuple(draw(st.lists(words32(), max_size=4)))
            ready.append(len(tensors))
            tensors.append(TensorSpec(FLOAT, dims, source, value, draw(st.booleans())))
        for _ in range(draw(st.integers(1, 3))):
            inputs = tuple(draw(st.lists(st.sampled_from(ready), max_size=3)))
            outputs = range(len(tensors), len(tensors) + draw(st.integers(0, 2)))
            tensors += [TensorSpec(FLOAT, (1,)) for _ in outputs]
            ready += outputs
            engine = draw(st.sampled_from([Engine.CPU, Engine.NNAPI]))
            segments.append(
                SegmentSpec(
                    engine,
                    draw(st.sampled_from(indices)),
                    inputs,
                    tuple(outputs),
                    draw(st.sampled_from([None, "npu", "gpu é"])),
                    draw(st.sampled_from([None, *Preference])),
                    SegmentFlag(draw(st.sampled_from([0, 1, 2, 4, 6]))),
                )
            )
        runs, warmup = (sorted(draw(st.tuples(RUNS, RUNS))) for _ in range(2))
        group = draw(st.sampled_from([0, group, number + 1]))
        builder.add_action(
            ActionSpec(
                number * 7,
                tuple(tensors),
                tuple(segments),
                Timing(
                    warmup_min=warmup[0],
                    warmup_max=warmup[1],
                    warmup_ns=draw(st.integers(0, 2**64 - 1)),
                    rounds=rounds,
                    min_runs=runs[0],
                    max_runs=runs[1],
                    budget_ns=draw(st.integers(0, 2**64 - 1)),
                    cooldown_ms=cooldown_ms,
                    timeout_ms=draw(st.integers(1, 0xFFFFFFFF)),
                ),
                flags=draw(st.sampled_from(FLAGS)),
                mode=draw(st.sampled_from(list(Mode)[:3])),
                pointers=draw(st.booleans()),
                threads=draw(words32()),
                cpu_mask=draw(st.integers(0, 2**64 - 1)),
                memory_kb=draw(words32()),
                group=group,
            )
        )
    return builder, models


@given(requests())
def test_what_is_read_is_what_was_written(case):
    builder, models = case
    data = builder.build()
    result = read_request(data)

    written = list(builder._models)
    for action, read, own in zip(
        builder._actions.values(), result["actions"], result["models"], strict=True
    ):
        numbers = [written.index((m, tuple(blobs))) for m, blobs in own]
        segments = tuple(replace(s, model=numbers[s.model]) for s in read.segments)
        assert replace(read, segments=segments) == action
    assert [name for _, name in result["blobs"]] == list(builder.blobs)
    for length, name in result["blobs"]:
        assert length == len(builder.blobs[name])
        assert hashlib.sha256(builder.blobs[name]).hexdigest() == name
    contents = list(builder.blobs.values())
    for own in result["models"]:
        for model, blobs in own:
            assert (model, [contents[i] for i in blobs]) in models
    assert builder.build() == data
    assert builder.request().silence_s == longest_of_groups(result["actions"]) / 1000


def longest_of_groups(actions: list[ActionSpec]) -> int:
    """Milliseconds: each group may time out once for each action, and cool down once."""
    result = [a.timing.timeout_ms + a.timing.cooldown_ms for a in actions if a.group == 0]
    for group in {a.group for a in actions} - {0}:
        members = [a.timing for a in actions if a.group == group]
        result.append(sum(t.timeout_ms for t in members) + members[0].cooldown_ms)
    return max(result, default=0)


def one_model() -> RequestBuilder:
    builder = RequestBuilder()
    builder.add_model(b"model", [b"weights"])
    return builder


IN, OUT = TensorSpec(FLOAT, (1,), TensorSource.RANDOM, 7), TensorSpec(FLOAT, (1,))
SEGMENT = SegmentSpec(Engine.CPU, 0, (0,), (1,))

SIX, ONCE = Timing(min_runs=6, max_runs=6), Timing(min_runs=1, max_runs=1)
ON_CPU = SegmentSpec(Engine.CPU, 0, (0,), (2,))


def on_nnapi(accelerator):
    return SegmentSpec(Engine.NNAPI, 0, (0,), (2,), accelerator)


def corun(*segments, flags=ActionFlag.CORUN, timing=SIX):
    """Segments side by side."""
    return ActionSpec(1, (IN, OUT, OUT), segments, timing, flags | ActionFlag.CORUN)


def test_a_request_tells_what_those_before_it_saw():
    assert read_request(RequestBuilder().build())["patience"] == (0xFFFFFFFF, [])
    told = read_request(RequestBuilder(Patience(1500, (1_800_000, None))).build())
    assert told["patience"] == (1500, [1_800_000, 0])
    drivers = (DriverFacts("npu", 2, "memfd"), DriverFacts(None, 4, None))
    in_request = read_request(RequestBuilder(Patience(drivers=drivers)).build())["drivers"]
    assert in_request == [("npu", 2, 3), (None, 4, 0)]


@pytest.mark.parametrize(
    ("action", "rule"),
    [
        (ActionSpec(1, (IN, OUT), ()), "no segments"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(timeout_ms=0)), "timeout of 0 ms"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(min_runs=9, max_runs=8)), "runs from 9 to 8"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(max_runs=100_001)), "100001"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(warmup_min=3)), "warm-up runs from 3 to 2"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), Timing(rounds=0)), "0 rounds"),
        (ActionSpec(1, (IN, OUT), (SEGMENT,), flags=ActionFlag.UNTIMED), "without timing"),
        (ActionSpec(1, (IN, OUT), (SegmentSpec(Engine.CPU, 3, (0,), (1,)),)), "model 3 of 1"),
        (ActionSpec(1, (IN,), (SEGMENT,)), "names tensor 1"),
        (ActionSpec(1, (IN, OUT), (SegmentSpec(Engine.CPU, 0, (1,), ()),)), "before it is"),
        (ActionSpec(1, (IN, OUT), (SEGMENT, SEGMENT)), "a second time"),
        (ActionSpec(1, (IN, OUT), (SegmentSpec(Engine.HOST, 0, (0,), (1,)),)), "runs on host"),
        (ActionSpec(1, (TensorSpec(FLOAT, (), TensorSource.BLOB, 5), OUT), (SEGMENT,)), "blob 5"),
        (corun(SEGMENT), "1 segments side by side, 2 to 8"),
        (corun(SEGMENT, ON_CPU), "on one processor"),
        (corun(SEGMENT, on_nnapi("auto")), "own choice is not a processor"),
        (corun(SEGMENT, on_nnapi(None)), "own choice is not a processor"),
        (corun(SEGMENT, on_nnapi("npu"), timing=Timing(min_runs=2, max_runs=3)), "one number"),
        (corun(SEGMENT, SegmentSpec(Engine.NNAPI, 0, (1,), (2,), "npu")), "writes"),
        (corun(SEGMENT, on_nnapi("npu"), flags=ActionFlag.UNTIMED, timing=ONCE), "are timed"),
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

    builder = one_model()
    auto = SegmentSpec.on(Target.nnapi("auto", Preference.LOW_POWER), 0, (0,), (1,))
    builder.add_action(ActionSpec(1, (IN, OUT), (auto,)))
    assert read_request(builder.build())["actions"][0].segments[0].accelerator is None


def test_equal_models_and_blobs_are_stored_once():
    builder = RequestBuilder()
    assert builder.add_model(b"m", [b"a", b"b"]) == builder.add_model(b"m", [b"a", b"b"]) == 0
    assert builder.add_model(b"m", [b"b", b"a"]) == 1
    assert list(builder.blobs.values()) == [b"a", b"b"]

"""Members of a phone's description: operations it takes, rates, choices, transfers, fusion."""

from typing import NamedTuple

import pytest

from tests.emulator.nnapi import Op, T
from tests.emulator.phones.descriptions import (
    FALLBACK,
    IN,
    MACS,
    OUT,
    RELU_3,
    WEIGHTS,
    Jobs,
    N,
    constant,
    convolution,
    cpu,
    load,
    npu,
    on,
    operation_ns,
    operations,
    phone,
    ratio,
    row,
    rules,
    us,
    whole_us,
    work,
)

LOW_POWER = 0
QUANT8, SIGNED = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
FLOAT32, FLOAT16, BOOL8 = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_BOOL8
jobs = Jobs()

# ---- supported operations -----------------------------------------------------------------------


class Support(NamedTuple):
    """What `operations` says, and what a model of one operation is told."""

    members: dict
    model: dict
    supported: bool
    relaxed: bool = False


def image(code, kind=FLOAT32):
    return row(code, dims=(1, 4, 4, 2), kind=kind)


SUPPORT = {
    "everything": Support({}, image(Op.RELU), True),
    "only": Support({"except": None, "only": ["TANH"]}, image(Op.RELU), False),
    "except": Support({"except": ["RELU"]}, image(Op.RELU), False),
    "data": Support({"default": "quant8 float16"}, image(Op.RELU), False),
    "data named": Support({"default": "quant8 float32"}, image(Op.RELU), True),
    "quant8": Support({"default": "quant8"}, image(Op.RELU, QUANT8), True),
    "signed is another kind": Support({"default": "quant8"}, image(Op.RELU, SIGNED), False),
    "signed": Support({"default": "quant8_signed"}, image(Op.RELU, SIGNED), True),
    "float16": Support({"default": "float32"}, image(Op.RELU, FLOAT16), False),
    "relaxed only": Support({"default": "relaxed"}, image(Op.RELU), False),
    "relaxed": Support({"default": "relaxed"}, row(Op.RELU), True, True),
    "float32 is relaxed": Support({"default": "float32"}, row(Op.RELU), True, True),
    "rank": Support({"default": "rank<=3"}, image(Op.RELU), False),
    "rank enough": Support({"default": "rank<=4"}, image(Op.RELU), True),
    "limit": Support({"limits": {"RELU": "rank<=3"}}, image(Op.RELU), False),
    "limit of another": Support({"limits": {"TANH": "rank<=3"}}, image(Op.RELU), True),
    "limit wider than default": Support(
        {"default": "quant8 rank<=2", "limits": {"RELU": "float32 rank<=4"}}, image(Op.RELU), True
    ),
    "limit keeps what it does not name": Support(
        {"default": "quant8", "limits": {"RELU": "rank<=4"}}, image(Op.RELU), False
    ),
    "level": Support({"default": "level<=28"}, image(Op.RELU, FLOAT16), False),
    "level enough": Support({"default": "level<=29"}, image(Op.RELU, FLOAT16), True),
    "bias and shapes do not count": Support({"default": "float32"}, convolution(), True),
    "truth values that are data do": Support(
        {"default": "float32"}, image(Op.LOGICAL_NOT, BOOL8), False
    ),
    "truth values": Support({"default": "bool8"}, image(Op.LOGICAL_NOT, BOOL8), True),
}
for name, case in SUPPORT.items():
    members = {"except": [], "origin": "a test", **case.members}
    members = {key: value for key, value in members.items() if value is not None}
    run = on(case.model, relaxed=case.relaxed)
    jobs(f"support {name}", phone(npu(operations=members)), run)


@pytest.mark.parametrize("name", SUPPORT)
def test_operations_by_data_rank_and_level(answers, name):
    (run,) = answers[f"support {name}"]["runs"]
    expected = SUPPORT[name].supported
    assert all(run["supported"]) == expected
    assert run["finish"] == ("NO_ERROR" if expected else "BAD_DATA")


# ---- rates --------------------------------------------------------------------------------------

SLOW = {"bandwidth": constant(1e6, "GB/s"), "operation_overhead": us(0)}  # arithmetic alone counts
RATES = {"default": 1, "float32": 2, "relaxed": 4, "float16": 8, "quant8": 16}
PEAKS = {kind: constant(value, "GMAC/s") for kind, value in RATES.items()}
KINDS = {
    "float32": (FLOAT32, False),
    "relaxed": (FLOAT32, True),
    "float16": (FLOAT16, False),
    "quant8": (QUANT8, False),
    "quant8_signed": (SIGNED, False),
    "bool8": (BOOL8, False),
}
ALL = operations()
for kind, (code, relaxed) in KINDS.items():
    model = row(Op.LOGICAL_NOT if code == BOOL8 else Op.RELU, kind=code)
    for left_out in (None, kind):
        peaks = {key: value for key, value in PEAKS.items() if key != left_out}
        description = phone(ALL, npu(peak=peaks, **SLOW, transfer_bandwidth=constant(1e6, "GB/s")))
        description["accelerators"][0]["invocation"] = us(0)
        jobs(f"rate {kind} {left_out}", description, on(model, relaxed=relaxed))
jobs(
    "cpu rates",
    phone(cpu(peak=PEAKS, operation_overhead=us(0))),
    cpu=[work(10**9, kind=kind) for kind in (FLOAT32, QUANT8, BOOL8)],
)


THREADS = {
    "scaling": ({}, {3: 1 + 0.5 + 0.25, 64: 2.0}),
    "cores": ({"cores": constant(2, "none")}, {1: 1.0, 2: 1.5, 9: 1.5}),
    "rows": (
        {"cores": constant(7, "none"), "thread_speed": {"2": ratio(1.5), "8": ratio(0.9)}},
        {1: 1.0, 2: 1.5, 5: 1.2, 7: 1.0, 8: 1.0},
    ),
}
for name, (members, speeds) in THREADS.items():
    plain = cpu(cores=None, thread_speed=None, peak=PEAKS, operation_overhead=us(0))
    description = phone(plain, cpu(thread_scaling=ratio(0.5), **members))
    jobs(f"threads {name}", description, cpu=[work(10**9, threads=n) for n in (1, *speeds)])


@pytest.mark.parametrize("name", THREADS)
def test_threads_of_the_cpu_engine(answers, name):
    one, *others = answers[f"threads {name}"]["cpu"]
    assert [one / ns for ns in others] == pytest.approx(list(THREADS[name][1].values()), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_peak_by_data(answers, kind):
    efficiency = load("npu-phone")["accelerators"][0]["efficiency"]["default"]["value"]
    fallback = {**FALLBACK, "quant8_signed": "quant8"}
    for left_out in (None, kind):
        at = kind
        while at not in RATES or at == left_out:
            at = fallback.get(at, "default")
        (run,) = answers[f"rate {kind} {left_out}"]["runs"]
        assert run["wall"] == pytest.approx([N / (RATES[at] * efficiency)], abs=2)


def test_peak_of_the_cpu_engine_by_data(answers):
    efficiency = load("npu-phone")["cpu"]["efficiency"]["CONV_2D"]["value"]
    expected = [1e9 / (RATES[kind] * efficiency) for kind in ("float32", "quant8", "default")]
    assert answers["cpu rates"]["cpu"] == pytest.approx(expected, rel=1e-6)


# ---- what NNAPI's runtime chooses by ------------------------------------------------------------

GOOD, BAD = ratio(0.1), ratio(5)
IN_FLOATS, IN_8_BITS = row(Op.RELU), row(Op.RELU, kind=QUANT8)
jobs(
    "performance",
    phone(ALL, npu(performance={"default": BAD, "quant8": GOOD}), accelerators=2),
    on(IN_FLOATS, "sim-npu", "sim-gpu"),
    on(IN_8_BITS, "sim-npu", "sim-gpu"),
    on(IN_FLOATS, "sim-npu"),
    on(IN_FLOATS, "sim-gpu"),
    on(IN_8_BITS, "sim-npu"),
)
for name, edit in {"with": npu(power=BAD), "without": npu(power=None)}.items():
    jobs(
        f"power {name}",
        phone(edit, accelerators=2),
        *[on(IN_FLOATS, "sim-npu", "sim-gpu", preference=p) for p in (LOW_POWER, 1)],
        *[on(IN_FLOATS, d, preference=LOW_POWER) for d in ("sim-npu", "sim-gpu")],
        on(IN_FLOATS, "sim-npu", preference=1),
    )


def test_performance_by_data_decides_for_nnapi(answers):
    both, both_q8, npu_alone, gpu_alone, npu_q8 = answers["performance"]["runs"]
    assert both["wall"] == gpu_alone["wall"] != npu_alone["wall"]
    assert both_q8["wall"] == npu_q8["wall"]


def test_power_decides_under_low_power_only(answers):
    low, fast, npu_low, gpu_low, npu_fast = answers["power with"]["runs"]
    assert low["wall"] == gpu_low["wall"] != npu_low["wall"]
    assert fast["wall"] == npu_fast["wall"]
    low, _, npu_low, _, _ = answers["power without"]["runs"]
    assert low["wall"] == npu_low["wall"]


# ---- transfers, caches --------------------------------------------------------------------------

for name, floor in {"floor": us(777), "no floor": None}.items():
    jobs(name, phone(npu(transfer_floor=floor)), on(RELU_3), on(RELU_3, mode="burst"))
CACHE = {"fixed": constant(3, "ms"), "per_megabyte": constant(1000, "ms")}


def test_transfer_floor(answers):
    runs = [answers[name]["runs"] for name in ("floor", "no floor")]
    for with_floor, without in zip(*runs, strict=True):
        for key, slack in (("wall", 1), ("driver", 1001)):
            assert with_floor[key][0] - without[key][0] == pytest.approx(777_000, abs=slack)
        assert with_floor["hardware"] == without["hardware"]


def test_compilation_from_a_cache(emulator_library, tmp_path):
    """The first compilation writes the cache, the second finds it; a driver without cannot."""
    compilation = load("npu-phone")["accelerators"][0]["compilation"]
    run, both = on(convolution(), cache=str(tmp_path)), Jobs()
    both("with", phone(npu(compilation={**compilation, "cache": CACHE})), run, run)
    both("without", phone(npu(compilation=compilation)), run, run)
    full = compilation["fixed"]["value"] * 1e6 + compilation["per_operation"]["value"] * 1e6
    full += compilation["per_megabyte"]["value"] * 4 * WEIGHTS
    for one, second in zip(
        both.answers(emulator_library, tmp_path).values(), (3e6 + 4e3 * WEIGHTS, full), strict=True
    ):
        assert [run["compile"] for run in one["runs"]] == pytest.approx([full, second], abs=1)


# ---- fusion -------------------------------------------------------------------------------------

PAD, CONV, ADD, RELU, TANH = Op.PAD, Op.CONV_2D, Op.ADD, Op.RELU, Op.TANH
MEMORY = npu(bandwidth=constant(0.5, "GB/s"))  # memory decides, so that saved bytes show
THEN_RELU, THEN_ADD_RELU = convolution(after=[RELU]), convolution(after=[ADD, RELU])
RELU_TOO = convolution(after=[RELU], output_too=True)
ADD_TO_ITSELF = convolution(after=[ADD], read_twice=True)
FUSED = {  # name: (patterns, model, groups of operations that run as one)
    "none": ([], THEN_RELU, [[CONV], [RELU]]),
    "relu": (["CONV_2D + RELU"], THEN_RELU, [[CONV, RELU]]),
    "alternatives": (["ADD|CONV_2D + TANH | RELU"], THEN_RELU, [[CONV, RELU]]),
    "other": (["CONV_2D + TANH"], THEN_RELU, [[CONV], [RELU]]),
    "three": (["CONV_2D + ADD + RELU", "CONV_2D + ADD"], THEN_ADD_RELU, [[CONV, ADD, RELU]]),
    "first": (["CONV_2D + ADD", "CONV_2D + ADD + RELU"], THEN_ADD_RELU, [[CONV, ADD], [RELU]]),
    "pairs": (
        ["CONV_2D + ADD", "RELU + RELU"],
        convolution(after=[ADD, RELU, RELU]),
        [[CONV, ADD], [RELU, RELU]],
    ),
    "pad": (["PAD + CONV_2D"], convolution(PAD), [[PAD, CONV]]),
    "output": (["CONV_2D + RELU"], RELU_TOO, [[CONV], [RELU]]),
    "read twice": (["CONV_2D + ADD"], ADD_TO_ITSELF, [[CONV], [ADD]]),
}
for name, (patterns, model, _) in FUSED.items():
    jobs(f"fusion {name}", phone(ALL, MEMORY, rules(*patterns)), on(model))
ACROSS = on(row(RELU, TANH, RELU), "sim-npu", "sim-gpu")
for name, edits in {"no ": (), "": (rules("RELU + TANH", "TANH + RELU"),)}.items():
    jobs(f"{name}fusion across steps", phone(MEMORY, *edits, accelerators=2), ACROSS)
PADDED = 18 * 18 * 8


def traffic(code, name):
    """MAC, elements read and written, and elements of constants."""
    before = PADDED if name == "pad" else IN
    return {
        PAD: (PADDED, IN + PADDED, 8),
        CONV: (MACS, before + OUT, WEIGHTS),
        RELU: (OUT, 2 * OUT, 0),
        ADD: (OUT, 3 * OUT, 0) if name == "read twice" else (OUT, 2 * OUT, 16),
    }[code]


@pytest.mark.parametrize("name", FUSED)
def test_fused_operations_pay_once_and_hand_nothing_over(answers, name):
    unit = phone(MEMORY)["accelerators"][0]
    expected = 0
    for group in FUSED[name][2]:
        work = [traffic(code, name) for code in group]
        handed = sum(PADDED if code == PAD else OUT for code in group[:-1])
        n_bytes = 4 * (sum(moved + weights for _, moved, weights in work) - 2 * handed)
        expected += max(
            operation_ns(unit, code, macs, n_bytes)
            for code, (macs, _, _) in zip(group, work, strict=True)
        )
    (run,) = answers[f"fusion {name}"]["runs"]
    assert run["hardware"] == [whole_us(expected)]


def test_nothing_is_fused_across_steps(answers):
    runs = [answers[f"{key}fusion across steps"]["runs"][0] for key in ("", "no ")]
    assert runs[0]["wall"] == runs[1]["wall"]

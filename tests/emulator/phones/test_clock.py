"""Simulated phones: their clock does what PHONES.md says, and the shipped ones say who they are
and take as long for whole models as was published."""

import math

import numpy as np
import pytest

from tests.emulator.nnapi import Op, T
from tests.emulator.phones.descriptions import (
    IN,
    MACS,
    NONE,
    OUT,
    PHONES,
    RELU_3,
    VALID,
    WEIGHTS,
    Jobs,
    N,
    Network,
    auto,
    constant,
    convolution,
    invocation_ns,
    load,
    on,
    operation_ns,
    quiet,
    row,
    row_ns,
    transfer_ns,
    whole_us,
)

SHIPPED = ("npu", "gpu", "dsp", "slow-nnapi")
FLAGSHIP = quiet("npu-phone")
NPU, GPU, REFERENCE = FLAGSHIP["accelerators"]
NO_CPU = {**FLAGSHIP, "accelerators": [NPU]}
KEYS = ("low_power", "fast", "sustained")
MIXED = row(Op.RELU, Op.RELU, Op.TANH, Op.RELU)
THREADS = {"1": constant(1.0, "ratio"), **FLAGSHIP["cpu"]["thread_speed"]}
WORKS = [[MACS, 4 * IN, 4 * OUT, 4 * WEIGHTS], [N, 4 * N, 4 * N, 0]]
CPU = {"codes": [Op.CONV_2D, 0x10000], "works": WORKS}
jobs = Jobs()
for preference, key in enumerate(KEYS):
    jobs(key, FLAGSHIP, on(RELU_3, preference=preference, repeat=2))
jobs("burst", FLAGSHIP, on(RELU_3, mode="burst"))
jobs("async", FLAGSHIP, on(RELU_3, mode="async"))
jobs("relaxed", FLAGSHIP, on(RELU_3, relaxed=True))
jobs("convolution", FLAGSHIP, on(convolution()))
jobs("refused and not", FLAGSHIP, on(MIXED), on(MIXED, "sim-gpu"))
jobs("auto", FLAGSHIP, auto(MIXED), on(MIXED, "sim-npu", "sim-gpu"), auto(RELU_3))
jobs("reference", FLAGSHIP, on(RELU_3, "nnapi-reference"))
jobs("changing", FLAGSHIP, on(RELU_3, repeat=3, change=True))
jobs("threads", FLAGSHIP, cpu=[{**CPU, "threads": n} for n in (0, 1, 2, 4)])
jobs("no CPU", NO_CPU, auto(MIXED))
jobs("gpu", quiet("gpu-phone"), auto(RELU_3))
for name in ("noise", "noise again"):
    many, three = on(RELU_3, repeat=200), {"repeat": 3}
    runs = [many, many, on(RELU_3, preference=2, **three), auto(MIXED, **three)]
    jobs(name, PHONES / "npu-phone.json", *runs, cpu=[{**CPU, "threads": 1}] * 3)
for name in SHIPPED:
    jobs(f"shipped {name}", PHONES / f"{name}-phone.json")


def run_of(answers, name):
    (run,) = answers[name]["runs"]
    return run


# ---- identity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", SHIPPED)
def test_shipped_phones_introduce_themselves(answers, key):
    answer, phone = answers[f"shipped {key}"], load(f"{key}-phone")
    assert answer["error"] is None
    assert answer["phone"] == phone["name"] == f"{key}-phone"
    assert answer["devices"] == [a["name"] for a in phone["accelerators"]]
    assert answer["model"] == phone["properties"]["ro.product.model"]
    assert answer["absent"] is None
    assert answer["start"] == 0  # the clock stands still until something runs


def test_identities_are_those_of_descriptions(answers):
    identity = {name: answer["identity"] for name, answer in answers.items()}
    assert {len(one) for one in identity.values()} == {16}
    assert identity["shipped npu"] == identity["noise"] == identity["noise again"]
    assert identity["fast"] == identity["burst"]
    assert len(set(identity.values())) == 13
    # Four shipped ones, these made quiet, these without accelerators, and one without a CPU.


# ---- the latency model -------------------------------------------------------------------------


def steps_ns(*steps):
    """Wall clock of steps, each an accelerator and its codes: all pay their own boundary."""
    return sum(row_ns(*step) + transfer_ns(step[0]) + invocation_ns(step[0]) for step in steps)


@pytest.mark.parametrize("key", KEYS)
def test_execution_time_follows_the_formula(answers, key):
    hardware = row_ns(NPU, [Op.RELU] * 3) * NPU["preference"][key]["value"]
    driver = hardware + transfer_ns(NPU)
    run = run_of(answers, key)
    assert run["hardware"] == [whole_us(hardware)] * 2
    assert run["driver"] == [whole_us(driver)] * 2
    assert run["wall"] == pytest.approx([driver + invocation_ns(NPU)] * 2, abs=1)


def test_burst_async_and_relaxed(answers):
    relaxed = row_ns(NPU, [Op.RELU] * 3, "relaxed") + transfer_ns(NPU) + invocation_ns(NPU)
    burst = row_ns(NPU, [Op.RELU] * 3) + transfer_ns(NPU)
    burst += NPU["burst_invocation"]["value"] * 1e3
    assert run_of(answers, "burst")["wall"] == pytest.approx([burst], abs=1)
    assert run_of(answers, "async")["wall"] == run_of(answers, "fast")["wall"][:1]
    assert run_of(answers, "relaxed")["wall"] == pytest.approx([relaxed], abs=1)


def test_convolution_counts_macs_and_weights(answers):
    run, compilation = run_of(answers, "convolution"), NPU["compilation"]
    hardware = operation_ns(NPU, Op.CONV_2D, MACS, 4 * (IN + OUT + WEIGHTS))
    assert run["hardware"] == [whole_us(hardware)]
    expected = compilation["fixed"]["value"] * 1e6 + compilation["per_operation"]["value"] * 1e6
    expected += compilation["per_megabyte"]["value"] * 4 * WEIGHTS
    assert run["compile"] == pytest.approx(expected, abs=1)


def test_unsupported_operation_is_refused_when_the_device_is_named(answers):
    refused, taken = answers["refused and not"]["runs"]
    assert refused["supported"] == [True, True, False, True]
    assert refused["finish"] == "BAD_DATA" and refused["compile"] == 0 and refused["wall"] == []
    assert taken["supported"] == [True] * 4 and taken["finish"] == "NO_ERROR"


def test_auto_gives_each_operation_to_the_smallest_performance(answers):
    whole, named, short = answers["auto"]["runs"]
    split = steps_ns((NPU, [Op.RELU, Op.RELU]), (GPU, [Op.TANH]), (NPU, [Op.RELU]))
    assert whole["wall"] == pytest.approx([split], abs=1)
    assert whole["hardware"] == [None]  # no single device was named: no duration
    fixed, each = (
        [unit["compilation"][key]["value"] for unit in (NPU, GPU)]
        for key in ("fixed", "per_operation")
    )
    compilation = 2 * fixed[0] + fixed[1] + 3 * each[0] + each[1]
    assert whole["compile"] == pytest.approx(compilation * 1e6, abs=1)
    assert named["wall"] == whole["wall"] and named["hardware"] == [None]
    assert short["wall"] == pytest.approx([steps_ns((NPU, [Op.RELU] * 3))], abs=1)


def test_auto_falls_back_to_the_cpu_engine_where_no_cpu_is_described(answers):
    """Without a CPU accelerator the phone's `cpu` takes what no other can: no invocation cost."""
    assert answers["no CPU"]["devices"] == ["sim-npu"]
    expected = steps_ns((NPU, [Op.RELU, Op.RELU]), (NPU, [Op.RELU]))
    expected += row_ns(FLAGSHIP["cpu"], [Op.TANH])
    assert run_of(answers, "no CPU")["wall"] == pytest.approx([expected], abs=1)


def test_nnapi_cpu_is_slower_than_the_cpu_engine(answers):
    (wall,) = run_of(answers, "reference")["wall"]
    assert wall == pytest.approx(steps_ns((REFERENCE, [Op.RELU] * 3)), abs=1)
    assert wall > row_ns(FLAGSHIP["cpu"], [Op.RELU] * 3)


def test_gpu_phone_has_a_floor_of_milliseconds(answers):
    assert 2e6 < run_of(answers, "gpu")["wall"][0] < 5e6


def test_cpu_engine_and_its_threads(answers):
    expected = []
    for threads in ("1", "1", "2", "4"):
        unit, speed_up = FLAGSHIP["cpu"], THREADS[threads]["value"]
        conv = operation_ns(unit, Op.CONV_2D, MACS, 4 * (IN + OUT + WEIGHTS), speed_up=speed_up)
        expected.append(conv + operation_ns(unit, "default", N, 8 * N, speed_up=speed_up))
    assert answers["threads"]["cpu"] == pytest.approx(expected, abs=1)


def test_results_are_computed_for_real_and_repeat_exactly(answers):
    same, changing = run_of(answers, "fast")["outputs"], run_of(answers, "changing")["outputs"]
    assert same[0] == same[1]
    assert len({output for _, output in changing}) == 3
    data = np.random.default_rng(3).uniform(-1, 1, (1, N)).astype(np.float32)
    for index, (_, output) in enumerate(changing):
        data = data + np.float32(index)
        assert output == pytest.approx(float(np.maximum(data, 0).sum()), rel=1e-6)


# ---- noise -------------------------------------------------------------------------------------


def test_noise_is_deterministic_and_log_normal(answers):
    assert answers["noise"] == answers["noise again"]
    one, two, sustained, auto_run = answers["noise"]["runs"]
    assert one["wall"] == two["wall"]  # by run number since compilation, not by process
    assert len(set(one["wall"])) > 190 and len(set(auto_run["wall"])) == 3
    spread = load("npu-phone")["noise"]["spread"]["value"]
    hardware = row_ns(NPU, [Op.RELU] * 3)
    driver = hardware + transfer_ns(NPU)
    wall = driver + invocation_ns(NPU)
    noise = np.array(one["wall"]) / wall  # the same for all parts of a run
    assert abs(np.mean(np.log(noise))) < 4 * spread / math.sqrt(200)
    assert np.std(np.log(noise)) == pytest.approx(spread, rel=0.25)
    factor = NPU["preference"]["sustained"]["value"]
    other_noise = np.array(sustained["wall"]) / (wall + (factor - 1) * hardware)
    assert other_noise != pytest.approx(noise[:3], rel=1e-4)
    assert one["hardware"] == pytest.approx(hardware * noise, abs=1001)
    assert one["driver"] == pytest.approx(driver * noise, abs=1001)


def test_cpu_noise_differs_from_run_to_run(answers):
    times = answers["noise"]["cpu"]
    assert len(set(times)) == 3
    assert np.ptp(times) / np.mean(times) < 0.1


# ---- whole models --------------------------------------------------------------------------------


def classify(net):
    pooling = net.scalars(VALID, 1, 1, *net.shape[1:3], NONE)
    net.step(Op.AVERAGE_POOL_2D, [net.at, *pooling], [1, 1, 1, net.shape[3]])
    net.convolution(1001, fuse=NONE)
    flat = net.operand(T.TENSOR_INT32, [2], [1, 1001])
    net.step(Op.RESHAPE, [net.at, flat], [1, 1001])
    net.step(Op.SOFTMAX, [net.at, net.operand(T.FLOAT32, [], 1.0)], [1, 1001], 1 / 256)
    return net.model()


def mobilenet_v1(quantised):
    """Howard et al. 2017, width 1, 224 x 224: 569 million MAC."""
    net = Network(1, 224, 224, 3, quantised=quantised)
    net.convolution(32, 3, 2)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
    for depth, stride in [*blocks, (1024, 2), (1024, 1)]:
        net.convolution(net.shape[3], 3, stride, depthwise=True)
        net.convolution(depth)
    return classify(net)


def mobilenet_v2(quantised):
    """Sandler et al. 2018, width 1, 224 x 224: 301 million MAC."""
    net = Network(1, 224, 224, 3, quantised=quantised)
    net.convolution(32, 3, 2)
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    for expand, depth, repeat, first in [*rows, (6, 160, 3, 2), (6, 320, 1, 1)]:
        for index in range(repeat):
            before, stride = net.at, first if index == 0 else 1
            if expand > 1:
                net.convolution(net.shape[3] * expand)
            net.convolution(net.shape[3], 3, stride, depthwise=True)
            net.convolution(depth, fuse=NONE)
            if index > 0:
                net.step(Op.ADD, [before, net.at, *net.scalars(NONE)], net.shape)
    net.convolution(1280)
    return classify(net)


NETWORKS = {"v1": mobilenet_v1, "v2": mobilenet_v2}
MEASURED = [  # phone, device (None: the CPU engine), network, quantised, ms, factor, whose
    ("npu-phone", "sim-npu", "v1", True, 3.2, 1.25, "Pixel 4, NNAPI"),
    ("npu-phone", "sim-gpu", "v2", False, 14.95, 1.25, "Mi 8 SE, GPU"),
    ("npu-phone", None, "v1", False, 39.54, 1.25, "Pixel 4, one large core"),
    ("npu-phone", None, "v2", False, 28.52, 1.25, "Pixel 4, one large core"),
    ("npu-phone", None, "v1", True, 16.84, 1.25, "Pixel 4, one large core"),
    ("gpu-phone", "sim-gpu", "v1", False, 10.79, 1.25, "Galaxy S10, GPU"),
    ("gpu-phone", "sim-gpu", "v2", False, 10.88, 1.25, "Galaxy S10, GPU"),
    ("gpu-phone", None, "v1", False, 33.23, 1.25, "Galaxy S10, one large core"),
    ("gpu-phone", None, "v2", False, 24.46, 1.25, "Galaxy S10, one large core"),
    ("gpu-phone", None, "v1", True, 15.56, 1.25, "Galaxy S10, one large core"),
    ("dsp-phone", "sim-dsp", "v1", True, 6.0, 1.15, "Pixel 3, NNAPI (Hexagon 685)"),
    ("dsp-phone", None, "v1", False, 54.41, 1.15, "Snapdragon 675, 1 thread"),
    ("dsp-phone", None, "v2", False, 38.97, 1.3, "Snapdragon 675, 1 thread"),
    ("dsp-phone", None, "v1", True, 59.39, 1.15, "Snapdragon 675, 1 thread"),
    ("slow-nnapi-phone", "sim-driver", "v1", False, 800, 1.15, "Mi A2, NNAPI"),
    ("slow-nnapi-phone", "sim-driver", "v1", True, 170, 1.15, "Mi A2, NNAPI"),
    ("slow-nnapi-phone", None, "v1", False, 150, 1.15, "Mi A2, 1 thread"),
    ("slow-nnapi-phone", None, "v1", True, 70, 1.15, "Mi A2, 1 thread"),
]
"""Published figures, whose files the descriptions cite: within a factor of them are the simulated
times of the same networks."""
FIGURES = {"-".join(map(str, row[:4])): row for row in MEASURED}
for name, (of, device, network, quantised, *_) in FIGURES.items():
    model, description = NETWORKS[network](quantised), quiet(of)
    if device is None:  # NNAPI has its CPU engine alone
        jobs(name, {**description, "accelerators": []}, auto(model))
    else:  # the CPU path takes what the accelerator does not, such as a last SOFTMAX
        jobs(name, description, on(model, device, "nnapi-reference"))


@pytest.mark.parametrize("name", FIGURES)
def test_whole_models_take_what_was_published(answers, name):
    *_, figure, factor, whose = FIGURES[name]
    run = run_of(answers, name)
    assert run["codes"] == ["NO_ERROR"]
    assert figure / factor < run["wall"][0] / 1e6 < figure * factor, whose

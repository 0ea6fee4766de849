"""Simulated phones: their clock does what PHONES.md says, and bad descriptions are refused."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.nnapi import CONV_2D, LOGISTIC, RELU, TANH
from tests.emulator.phones.process import run_jobs

PHONES = Path(__file__).parents[3] / "device_agent" / "emulator" / "phones"
NAMES = {RELU: "RELU", LOGISTIC: "LOGISTIC", TANH: "TANH", CONV_2D: "CONV_2D"}
WIDTH = 4096
KEYS = ("low_power", "fast", "sustained")
SHIPPED = ("npu", "gpu", "dsp", "slow-nnapi")
CONVOLUTION = {"macs": 16 * 16 * 16 * 72, "bytes": 4 * (16 * 16 * (8 + 16) + 16 * 72 + 16)}


def load(name):
    return json.loads((PHONES / f"{name}.json").read_text())


def quiet(name):
    """A shipped phone without noise."""
    phone = load(name)
    phone["noise"]["spread"]["value"] = 0
    return phone


def accelerator(phone, name):
    return next(a for a in phone["accelerators"] if a["name"] == name)


FALLBACK = {"relaxed": "float32", "float16": "relaxed", "per_channel": "quant8"}


def by_data(constants, kind):
    """The constant of a kind of data: its own, or that of the kind it falls back to."""
    if "value" in constants:
        return constants["value"]
    while kind not in constants and kind != "default":
        kind = FALLBACK.get(kind, "default")
    return constants[kind]["value"]


def operation_ns(unit, name, macs, bytes_moved, kind="float32", speed_up=1.0):
    """PHONES.md: max(macs / (peak x efficiency), bytes / bandwidth) + operation_overhead."""
    efficiency = unit["efficiency"].get(name, unit["efficiency"]["default"])["value"]
    compute = macs / (by_data(unit["peak"], kind) * efficiency * speed_up)
    memory = bytes_moved / unit["bandwidth"]["value"]
    return max(compute, memory) + unit["operation_overhead"]["value"] * 1e3


def chain_ns(unit, codes, kind="float32"):
    return sum(operation_ns(unit, NAMES[code], WIDTH, 8 * WIDTH, kind) for code in codes)


def transfer_ns(unit, n_bytes):
    floor = unit.get("transfer_floor", {"value": 0})["value"] * 1e3
    return floor + n_bytes / unit["transfer_bandwidth"]["value"]


def whole_us(ns):
    """What getDuration tells: whole microseconds, rounded down."""
    return int(ns + 0.5) // 1000 * 1000


@pytest.fixture(scope="module")
def answers(emulator_library, tmp_path_factory):
    """All jobs of this module, run by one helper process."""
    folder = tmp_path_factory.mktemp("phones")
    files = {name: PHONES / f"{name}-phone.json" for name in SHIPPED}
    no_cpu = quiet("npu-phone")
    no_cpu["accelerators"] = [accelerator(no_cpu, "sim-npu")]
    described = {"quiet": quiet("npu-phone"), "no_cpu": no_cpu, "gpu_quiet": quiet("gpu-phone")}
    for name, phone in described.items():
        files[name] = folder / f"{name}.json"
        files[name].write_text(json.dumps(phone))

    relu = {"operations": [RELU] * 3, "width": WIDTH}
    mixed = {"operations": [RELU, RELU, TANH, RELU], "width": WIDTH}
    conv = {"convolution": True}
    runs = [
        {"model": relu, "devices": ["sim-npu"], "preference": p, "repeat": 2} for p in (0, 1, 2)
    ]
    runs += [
        {"model": relu, "devices": ["sim-npu"], "mode": "burst"},
        {"model": relu, "devices": ["sim-npu"], "mode": "async"},
        {"model": relu, "devices": ["sim-npu"], "relaxed": True},
        {"model": conv, "devices": ["sim-npu"]},
        {"model": mixed, "devices": ["sim-npu"]},
        {"model": mixed, "devices": ["sim-gpu"]},
        {"model": mixed, "devices": None},
        {"model": mixed, "devices": ["sim-npu", "sim-gpu"]},
        {"model": relu, "devices": None},
        {"model": relu, "devices": ["nnapi-reference"]},
        {"model": relu, "devices": ["sim-npu"], "repeat": 3, "change": True},
    ]
    works = [[CONVOLUTION["macs"], 8192, 16384, 4672], [WIDTH, 4 * WIDTH, 4 * WIDTH, 0]]
    cpu = [{"codes": [CONV_2D, 0x10000], "works": works, "threads": t} for t in (0, 1, 2, 4)]
    noisy = [
        {"model": relu, "devices": ["sim-npu"], "repeat": 200},
        {"model": relu, "devices": ["sim-npu"], "repeat": 200},
        {"model": relu, "devices": ["sim-npu"], "preference": 2, "repeat": 3},
        {"model": mixed, "devices": None, "repeat": 3},
    ]
    jobs = {
        "quiet": {"phone": files["quiet"], "runs": runs, "cpu": cpu},
        "no_cpu": {"phone": files["no_cpu"], "runs": [runs[9]]},
        "gpu_quiet": {"phone": files["gpu_quiet"], "runs": [{"model": relu, "devices": None}]},
        "npu": {"phone": files["npu"], "runs": noisy, "cpu": cpu[1:2] * 3},
        "npu again": {"phone": files["npu"], "runs": noisy, "cpu": cpu[1:2] * 3},
        **{name: {"phone": files[name]} for name in SHIPPED if name != "npu"},
    }
    for name, (_, text, _) in BAD.items():
        path = folder / f"bad-{name}.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        jobs[f"bad {name}"] = {"phone": path, "runs": [{"model": relu, "devices": None}]}
    jobs["missing"] = {"phone": folder / "nothing-here.json"}
    jobs["folder"] = {"phone": folder}
    for job in jobs.values():
        job["phone"] = str(job["phone"])
    return dict(zip(jobs, run_jobs(emulator_library, list(jobs.values())), strict=True))


@pytest.fixture
def runs(answers):
    return answers["quiet"]["runs"]


# ---- identity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", SHIPPED)
def test_shipped_phones_introduce_themselves(answers, key):
    answer, phone = answers[key], load(f"{key}-phone")
    assert answer["error"] is None
    assert answer["phone"] == phone["name"] == f"{key}-phone"
    assert answer["devices"] == [a["name"] for a in phone["accelerators"]]
    assert answer["model"] == phone["properties"]["ro.product.model"]
    assert answer["absent"] is None
    assert len(answer["identity"]) == 16
    assert answer["start"] == 0  # the clock stands still until something runs
    assert answer["identity"] != answers["quiet"]["identity"]
    assert answer["identity"] == answers["npu again" if key == "npu" else key]["identity"]


def test_shipped_phones_state_every_origin():
    constants = []

    def visit(value, path):
        if isinstance(value, dict) and "value" in value:
            assert set(value) == {"value", "unit", "origin"} and len(value["origin"]) > 8, path
            constants.append(value["origin"])
            return
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, (dict, list)):
                visit(child, f"{path}.{key}")
            else:
                assert isinstance(child, str) or key in ("version", "feature_level", "nth"), path

    for path in PHONES.glob("*.json"):
        visit(json.loads(path.read_text()), path.stem)
    assert len(constants) > 200
    assert sum("assumed" not in origin for origin in constants) > 60


# ---- the latency model -------------------------------------------------------------------------


@pytest.mark.parametrize("preference", [0, 1, 2])
def test_execution_time_follows_the_formula(runs, preference):
    npu = accelerator(quiet("npu-phone"), "sim-npu")
    hardware = chain_ns(npu, [RELU] * 3) * npu["preference"][KEYS[preference]]["value"]
    driver = hardware + transfer_ns(npu, 8 * WIDTH)
    wall = driver + npu["invocation"]["value"] * 1e3
    run = runs[preference]
    assert run["hardware"] == [whole_us(hardware)] * 2
    assert run["driver"] == [whole_us(driver)] * 2
    assert run["wall"] == pytest.approx([wall] * 2, abs=1)


def test_burst_async_and_relaxed(runs):
    npu = accelerator(quiet("npu-phone"), "sim-npu")
    driver = chain_ns(npu, [RELU] * 3) + transfer_ns(npu, 8 * WIDTH)
    assert runs[3]["wall"] == pytest.approx(
        [driver + npu["burst_invocation"]["value"] * 1e3], abs=1
    )
    assert runs[4]["wall"] == runs[1]["wall"][:1]
    wall = chain_ns(npu, [RELU] * 3, "relaxed") + transfer_ns(npu, 8 * WIDTH)
    wall += npu["invocation"]["value"] * 1e3
    assert runs[5]["wall"] == pytest.approx([wall], abs=1)


def test_convolution_counts_macs_and_weights(runs):
    npu = accelerator(quiet("npu-phone"), "sim-npu")
    work = CONVOLUTION["macs"], CONVOLUTION["bytes"]
    assert runs[6]["hardware"] == [whole_us(operation_ns(npu, "CONV_2D", *work))]
    compilation = npu["compilation"]
    expected = compilation["fixed"]["value"] * 1e6 + compilation["per_operation"]["value"] * 1e6
    expected += compilation["per_megabyte"]["value"] * 4 * (16 * 72 + 16)
    assert runs[6]["compile"] == pytest.approx(expected, abs=1)


def test_unsupported_operation_is_refused_when_the_device_is_named(runs):
    refused = runs[7]
    assert refused["supported"] == [True, True, False, True]
    assert refused["finish"] == "BAD_DATA" and refused["compile"] == 0 and refused["wall"] == []
    assert runs[8]["supported"] == [True] * 4 and runs[8]["finish"] == "NO_ERROR"


def steps_ns(*steps):
    """Wall clock of steps, each an accelerator and its codes: all pay their own boundary."""
    return sum(
        chain_ns(unit, codes) + transfer_ns(unit, 8 * WIDTH) + unit["invocation"]["value"] * 1e3
        for unit, codes in steps
    )


def test_auto_gives_each_operation_to_the_smallest_performance(runs):
    phone = quiet("npu-phone")
    npu, gpu = accelerator(phone, "sim-npu"), accelerator(phone, "sim-gpu")
    split = steps_ns((npu, [RELU, RELU]), (gpu, [TANH]), (npu, [RELU]))
    assert runs[9]["wall"] == pytest.approx([split], abs=1)
    assert runs[9]["hardware"] == [None]  # no single device was named: no duration
    fixed = 2 * npu["compilation"]["fixed"]["value"] + gpu["compilation"]["fixed"]["value"]
    each = 3 * npu["compilation"]["per_operation"]["value"]
    each += gpu["compilation"]["per_operation"]["value"]
    assert runs[9]["compile"] == pytest.approx((fixed + each) * 1e6, abs=1)
    assert runs[10]["wall"] == runs[9]["wall"] and runs[10]["hardware"] == [None]
    assert runs[11]["wall"] == pytest.approx([steps_ns((npu, [RELU] * 3))], abs=1)


def test_auto_falls_back_to_the_cpu_engine_where_no_cpu_is_described(answers):
    """Without a CPU accelerator the phone's `cpu` takes what no other can: no invocation cost."""
    phone, answer = quiet("npu-phone"), answers["no_cpu"]
    npu, (run,) = accelerator(phone, "sim-npu"), answer["runs"]
    assert answer["devices"] == ["sim-npu"]
    expected = steps_ns((npu, [RELU, RELU]), (npu, [RELU])) + chain_ns(phone["cpu"], [TANH])
    assert run["wall"] == pytest.approx([expected], abs=1)


def test_nnapi_cpu_is_slower_than_the_cpu_engine(runs, answers):
    phone = quiet("npu-phone")
    reference = accelerator(phone, "nnapi-reference")
    assert runs[12]["wall"] == pytest.approx([steps_ns((reference, [RELU] * 3))], abs=1)
    assert runs[12]["wall"][0] > chain_ns(phone["cpu"], [RELU] * 3)


def test_gpu_phone_has_a_floor_of_milliseconds(answers):
    assert 2e6 < answers["gpu_quiet"]["runs"][0]["wall"][0] < 5e6


def test_cpu_engine_and_its_threads(answers):
    cpu = quiet("npu-phone")["cpu"]
    rows = {1: 1.0, **{int(n): each["value"] for n, each in cpu["thread_speed"].items()}}
    for actual, threads in zip(answers["quiet"]["cpu"], (1, 1, 2, 4), strict=True):
        speed_up = rows[threads]
        conv = CONVOLUTION["macs"], CONVOLUTION["bytes"]
        expected = operation_ns(cpu, "CONV_2D", *conv, speed_up=speed_up)
        expected += operation_ns(cpu, "default", WIDTH, 8 * WIDTH, speed_up=speed_up)
        assert actual == pytest.approx(expected, abs=1)


def test_results_are_computed_for_real_and_repeat_exactly(runs):
    changing, same = runs[13]["outputs"], runs[0]["outputs"]
    assert same[0] == same[1]
    assert len({output for _, output in changing}) == 3
    rng = np.random.default_rng(3)
    data = rng.standard_normal((1, WIDTH)).astype(np.float32)
    for index, (_, output) in enumerate(changing):
        data = data + np.float32(index)
        assert output == pytest.approx(float(np.maximum(data, 0).sum()), rel=1e-6)


# ---- noise -------------------------------------------------------------------------------------


def test_noise_is_deterministic_and_log_normal(answers):
    first, again = answers["npu"], answers["npu again"]
    assert first["runs"] == again["runs"] and first["cpu"] == again["cpu"]
    one, two, sustained, auto = first["runs"]
    assert one["wall"] == two["wall"]  # by run number since compilation, not by process
    assert len(set(one["wall"])) > 190 and len(set(auto["wall"])) == 3
    npu, spread = accelerator(load("npu-phone"), "sim-npu"), load("npu-phone")["noise"]["spread"]
    quiet_hardware = chain_ns(npu, [RELU] * 3)
    quiet_driver = quiet_hardware + transfer_ns(npu, 8 * WIDTH)
    quiet_wall = quiet_driver + npu["invocation"]["value"] * 1e3
    logs = [math.log(w / quiet_wall) for w in one["wall"]]
    assert abs(np.mean(logs)) < 4 * spread["value"] / math.sqrt(200)
    assert np.std(logs) == pytest.approx(spread["value"], rel=0.25)
    factor = npu["preference"]["sustained"]["value"]
    ratios = [w / (quiet_wall + (factor - 1) * quiet_hardware) for w in sustained["wall"]]
    assert ratios != pytest.approx([w / quiet_wall for w in one["wall"][:3]], rel=1e-4)
    for hardware, driver, wall in zip(one["hardware"], one["driver"], one["wall"], strict=True):
        noise = wall / quiet_wall  # the same for all parts of a run
        assert hardware == pytest.approx(quiet_hardware * noise, abs=1001)
        assert driver == pytest.approx(quiet_driver * noise, abs=1001)


def test_cpu_noise_differs_from_run_to_run(answers):
    assert len(set(answers["npu"]["cpu"])) == 3
    assert np.ptp(answers["npu"]["cpu"]) / np.mean(answers["npu"]["cpu"]) < 0.1


# ---- bad descriptions --------------------------------------------------------------------------


def edited(path, value):
    """The shipped phone with the value at a path replaced; None removes it."""
    at = phone = load("npu-phone")
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return phone


def constant(value, unit, origin="assumed: a test"):
    return {"value": value, "unit": unit, "origin": origin}


FIRST = ("accelerators", 0)
BAD = {  # name: (what the message must contain, file)
    key: (expected, text, None)
    for key, expected, text in [
        ("empty", "line 1, column 1: found the end of the file, wanted a value", ""),
        ("truncated", "found the end of the file", json.dumps(load("npu-phone"))[:-2]),
        ("trailing", "wanted the end of the file", json.dumps(load("npu-phone")) + "x"),
        ("deep", "at most 32 levels of nesting", "[" * 40),
        ("twice", "member names that occur once", '{"a": 1, "a": 2}'),
        ("control", "no control character", '{"a\n": 1}'),
        ("escape", "an escape", '{"\\x": 1}'),
        ("surrogate", "low half of a surrogate pair", '{"\\ud800": 1}'),
        ("array", "the file: found an array, wanted an object", "[]"),
        ("number", "a number that fits a double", '{"a": 1e999}'),
        (
            "format",
            'format: found other, wanted "nnapi-emulator-phone"',
            edited(["format"], "other"),
        ),
        ("version", "version: found 1, wanted a whole number", edited(["version"], 1)),
        ("unknown", 'the file: found member "colour"', edited(["colour"], "red")),
        ("no-cpu", "cpu: found nothing, wanted this member", edited(["cpu"], None)),
        ("no-unit", "cpu.peak.unit: found nothing", edited(["cpu", "peak"], {"value": 1})),
        (
            "no-origin",
            "cpu.peak.origin: found nothing",
            edited(["cpu", "peak"], {"value": 1, "unit": "GMAC/s"}),
        ),
        (
            "unit",
            'cpu.peak.unit: found "GFLOP/s", wanted unit "GMAC/s"',
            edited(["cpu", "peak"], constant(1, "GFLOP/s")),
        ),
        (
            "bare",
            "cpu.bandwidth: found 10, wanted a constant",
            edited(["cpu", "bandwidth"], 10),
        ),
        (
            "zero",
            "cpu.peak.value: found 0, wanted a number above 0",
            edited(["cpu", "peak"], constant(0, "GMAC/s")),
        ),
        (
            "efficiency",
            "accelerators[0].efficiency.CONV_2D.value: found 1.5",
            edited([*FIRST, "efficiency", "CONV_2D"], constant(1.5, "ratio")),
        ),
        (
            "operation",
            'accelerators[0].operations.only[0]: found "CONV3D"',
            edited([*FIRST, "operations"], {"only": ["CONV3D"]}),
        ),
        (
            "both",
            'accelerators[0].operations: found both "only" and "except"',
            edited([*FIRST, "operations"], {"only": [], "except": []}),
        ),
        ("type", "accelerators[0].type: found DSP", edited([*FIRST, "type"], "DSP")),
        ("level", "accelerators[0].feature_level: found 32", edited([*FIRST, "feature_level"], 32)),
        (
            "preference",
            "accelerators[0].preference.sustained: found nothing",
            edited([*FIRST, "preference", "sustained"], None),
        ),
        (
            "names",
            "accelerators[1]: found a name used before",
            edited(["accelerators", 1, "name"], "sim-npu"),
        ),
        ("property", "properties.x: found 1, wanted text", edited(["properties", "x"], 1)),
        (
            "spread",
            "noise.spread.value: found -1",
            edited(["noise", "spread"], constant(-1, "ratio")),
        ),
    ]
}


@pytest.mark.parametrize("name", BAD)
def test_bad_descriptions_are_refused_with_the_path(answers, name):
    answer = answers[f"bad {name}"]
    assert BAD[name][0] in answer["error"]
    assert "NNAPI_EMULATOR_PHONE" in answer["error"] and f"bad-{name}.json" in answer["error"]
    assert answer["devices"] == [] and answer["phone"] is None
    assert answer["runs"][0]["finish"] == "UNAVAILABLE_DEVICE"


def test_unreadable_descriptions(answers):
    assert "cannot open: No such file or directory" in answers["missing"]["error"]
    assert "folder" in answers["folder"]["error"]

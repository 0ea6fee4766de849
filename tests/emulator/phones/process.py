"""Runs jobs on simulated phones, each in a process of its own: the library reads the description
once in a process. ``run_jobs`` starts one helper process, which forks for every job.

A job is {"phone": path, "env": {variables}, "runs": [RUN...], "cpu": [CPU...]}. RUN is {"model":
MODEL, "devices": [names] or None, "preference": 0..2 or None, "relaxed": bool, "mode": "sync" |
"async" | "burst", "repeat": n, "change": new inputs for each run, "cache": a folder, "idle": ns
before it}. MODEL is {"operations": [codes], "width": n}, a row of element-wise operations;
{"convolution": True}; or any graph: {"tensors": [[type, dims, scale, zero point, value]...],
"steps": [[code, inputs, outputs]...], "inputs": [one], "outputs": [...]}, where a value is None, 0
for zeros, or a list. CPU is {"codes": [...], "works": [[macs, input, output, constant bytes,
type]...], "threads": n}. "lanes" is a list of RUNs and CPUs, each with "repeat", that run at once,
a thread each. The answer has the devices, what np_emulator_* tells, and for each RUN its
result codes, times in ns, and temperature and clock of the CPU after it.
"""

import ctypes as C
import json
import os
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tests.emulator.nnapi import OK, Model, Nnapi, Result, Work, convolution, handles, prepared

REPO = Path(__file__).parents[3]
DTYPES = {
    0: "f4",
    1: "i4",
    3: "f4",
    4: "i4",
    5: "u1",
    6: "u1",
    8: "f2",
    9: "u1",
    11: "i1",
    14: "i1",
}


def run_jobs(library, jobs):
    """Answers of the jobs, in their order."""
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    finished = subprocess.run(
        [sys.executable, "-m", "tests.emulator.phones.process", str(library)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        cwd=REPO,
        env=environment,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def chain(nn, codes, width, relaxed=False):
    """Element-wise operations in a row over [1, width]."""
    model = Model(nn)
    tensors = [model.tensor(1, width) for _ in range(len(codes) + 1)]
    for code, before, after in zip(codes, tensors, tensors[1:], strict=False):
        model.operation(code, [before], [after])
    if relaxed:
        assert nn.Model_relaxComputationFloat32toFloat16(model.handle, True) == OK
    return model.finish(tensors[:1], tensors[-1:])


def any_graph(nn, shape, relaxed=False):
    """A model of the general form."""
    model = Model(nn)
    for code, dims, scale, zero_point, value in shape["tensors"]:
        index = model.operand(code, dims, scale, zero_point)
        if value is None:
            continue
        array = np.asarray(value, DTYPES[code])
        array = np.ascontiguousarray(np.broadcast_to(array, dims) if dims else array)
        model.keep(array)
        pointer = array.ctypes.data_as(C.c_void_p)
        assert nn.Model_setOperandValue(model.handle, index, pointer, array.nbytes) == OK
    for code, inputs, outputs in shape["steps"]:
        model.operation(code, inputs, outputs)
    if relaxed:
        assert nn.Model_relaxComputationFloat32toFloat16(model.handle, True) == OK
    return model.finish(shape["inputs"], shape["outputs"])


def build(nn, run):
    """The model of a RUN, its input and its outputs, and the number of its operations."""
    shape, rng = run["model"], np.random.default_rng(3)
    relaxed = run.get("relaxed", False)
    if "steps" in shape:
        ends = [shape["tensors"][index] for index in [*shape["inputs"], *shape["outputs"]]]
        data, *outputs = [np.zeros(dims, DTYPES[code]) for code, dims, *_ in ends]
        return any_graph(nn, shape, relaxed), data, outputs, len(shape["steps"])
    if shape.get("convolution"):
        model, before, after = convolution(nn, size=16, depth_in=8, depth_out=16), 8, 16
        data = rng.standard_normal((1, 16, 16, before)).astype(np.float32)
        return model, data, [np.full((1, 16, 16, after), np.nan, np.float32)], 1
    codes, width = shape["operations"], shape["width"]
    data = rng.standard_normal((1, width)).astype(np.float32)
    return (
        chain(nn, codes, width, relaxed),
        data,
        np.full((1, width), np.nan, np.float32),
        len(codes),
    )


def execute(nn, compilation, execution, mode):
    if mode == "burst":
        burst = nn.new("Burst_create", compilation)
        result = nn.Execution_burstCompute(execution, burst)
        nn.Burst_free(burst)
        return result
    if mode == "async":
        event = nn.new("Execution_startCompute", execution)
        result = nn.Event_wait(event)
        nn.Event_free(event)
        return result
    return nn.Execution_compute(execution)


def duration(nn, execution, code):
    ns = C.c_uint64()
    result = nn.Execution_getDuration(execution, code, C.byref(ns))
    return ns.value if result == OK else None


def compile_model(nn, model, named, run):
    """A compilation and what its finish returned."""
    if "cache" not in run:
        return model.try_compile(named, run.get("preference"))
    compilation = nn.new("Compilation_createForDevices", model.handle, handles(named), len(named))
    token = (C.c_uint8 * 32)(*range(32))
    assert nn.Compilation_setCaching(compilation, run["cache"].encode(), token) == OK
    return compilation, nn.Compilation_finish(compilation)


def measure(nn, devices, run):
    """One RUN of a job."""
    nn.emulator_idle(run.get("idle", 0))
    model, data, outputs, n_operations = build(nn, run)
    named = None if run.get("devices") is None else [devices[name] for name in run["devices"]]
    supported = None
    if named:
        flags = (C.c_bool * n_operations)()
        ask = nn.Model_getSupportedOperationsForDevices
        assert ask(model.handle, handles(named), len(named), flags) == OK
        supported = list(flags)
    before = nn.emulator_now()
    compilation, code = compile_model(nn, model, named, run)
    answer = {
        "finish": Result(code).name,
        "compile": nn.emulator_now() - before,
        "supported": supported,
        "codes": [],
        "wall": [],
        "hardware": [],
        "driver": [],
        "outputs": [],
    }
    for index in range(run.get("repeat", 1) if code == OK else 0):
        if run.get("change"):
            data = data + np.float32(index)
        execution = prepared(nn, compilation, [data], outputs)
        timed = nn.Execution_setMeasureTiming(execution, True) == OK
        start = nn.emulator_now()
        result = execute(nn, compilation, execution, run.get("mode", "sync"))
        answer["codes"].append(Result(result).name)
        answer["wall"].append(nn.emulator_now() - start)
        answer["hardware"].append(duration(nn, execution, 0) if timed else None)
        answer["driver"].append(duration(nn, execution, 1) if timed else None)
        answer["outputs"].append([float(data.sum(dtype=np.float64)), float(outputs[0].sum())])
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()
    return {**answer, "temperature": nn.emulator_temperature(), "khz": nn.emulator_cpu_khz()}


def lane(nn, devices, index, one):
    """What a lane does, made ready: a function that returns its times."""

    def timed(run):
        walls, hardware = [], []
        nn.emulator_enter(index)
        for _ in range(one["repeat"]):
            before = nn.emulator_now()
            hardware.append(run())
            walls.append(nn.emulator_now() - before)
        nn.emulator_leave()
        return {"wall": walls, "hardware": hardware}

    if "codes" in one:
        n = len(one["codes"])
        codes, works = (C.c_int32 * n)(*one["codes"]), [Work(*work) for work in one["works"]]
        return lambda: timed(
            lambda: nn.emulator_cpu_run(codes, (Work * n)(*works), n, one["threads"])
        )
    model, data, outputs, _ = build(nn, one)
    named = [devices[name] for name in one["devices"]]
    compilation, code = compile_model(nn, model, named, one)
    assert code == OK

    def run():
        execution = prepared(nn, compilation, [data], outputs)
        nn.Execution_setMeasureTiming(execution, True)
        result = execute(nn, compilation, execution, one.get("mode", "sync"))
        told = duration(nn, execution, 0) if result == OK else Result(result).name
        nn.Execution_free(execution)
        return told

    return lambda: timed(run)


def together(nn, devices, lanes):
    """The times of lanes that run at once, and the process's clock and drivers."""
    ready = [lane(nn, devices, index, one) for index, one in enumerate(lanes)]
    before, drivers = nn.emulator_now(), nn.emulator_driver_ns()
    warm = nn.emulator_temperature()
    answer = {"begun": nn.emulator_lanes(len(lanes)), "again": nn.emulator_lanes(len(lanes))}
    with ThreadPoolExecutor(len(lanes)) as pool:
        answer["lanes"] = [one.result() for one in [pool.submit(run) for run in ready]]
    answer["whole"] = nn.emulator_now() - before
    answer["drivers"] = nn.emulator_driver_ns() - drivers
    return {**answer, "temperatures": [warm, nn.emulator_temperature()]}


def perform(library, job):
    os.environ["NNAPI_EMULATOR_PHONE"] = str(job["phone"])
    os.environ.update(job.get("env", {}))
    nn = Nnapi(library)
    devices = nn.devices()
    text = lambda value: value.decode() if value is not None else None  # noqa: E731
    answer = {
        "devices": list(devices),
        "phone": text(nn.emulator_phone()),
        "error": text(nn.emulator_error()),
        "identity": text(nn.emulator_identity()),
        "model": text(nn.emulator_property(b"ro.product.model")),
        "absent": text(nn.emulator_property(b"no.such.property")),
        "start": nn.emulator_now(),
        "temperature": nn.emulator_temperature(),
        "runs": [measure(nn, devices, run) for run in job.get("runs", [])],
        "cpu": [],
    }
    for call in job.get("cpu", []):
        n, before = len(call["codes"]), nn.emulator_now()
        works = (Work * n)(*[Work(*work) for work in call["works"]])
        nn.emulator_cpu_run((C.c_int32 * n)(*call["codes"]), works, n, call["threads"])
        answer["cpu"].append(nn.emulator_now() - before)
    if "lanes" in job:
        answer["together"] = together(nn, devices, job["lanes"])
    return answer


def fork_and_perform(library, job):
    """Performs a job in a child; its answer comes through a pipe."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with os.fdopen(write_end, "w") as out:
                json.dump(perform(library, job), out)
            status = 0
        except BaseException:  # the child must never return into the parent's code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        text = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        sys.exit(f"job on {job['phone']} ended with {status}")
    return json.loads(text)


if __name__ == "__main__":
    json.dump([fork_and_perform(sys.argv[1], job) for job in json.load(sys.stdin)], sys.stdout)

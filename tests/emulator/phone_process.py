"""Runs jobs on simulated phones, each in a process of its own: the library reads the description
once in a process. ``run_jobs`` starts one helper process, which forks for every job.

A job is {"phone": path, "runs": [RUN...], "cpu": [CPU...]}; RUN is {"model": {"operations":
[codes], "width": n} or {"convolution": True}, "devices": [names] or None, "preference": 0..2 or
None, "relaxed": bool, "mode": "sync" | "async" | "burst", "repeat": n, "change": new inputs for
each run}; CPU is {"codes": [...], "works": [[macs, input, output, constant bytes]...], "threads":
n}. Its answer has the devices, what np_emulator_*
tells, and for each RUN its result codes and times in ns.
"""

import ctypes as C
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np

from tests.emulator.nnapi import OK, Model, Nnapi, Result, Work, convolution, handles, prepared

REPO = Path(__file__).parents[2]


def run_jobs(library, jobs):
    """Answers of the jobs, in their order."""
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    finished = subprocess.run(
        [sys.executable, "-m", "tests.emulator.phone_process", str(library)],
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


def build(nn, run):
    shape = run["model"]
    if shape.get("convolution"):
        model = convolution(nn, size=16, depth_in=8, depth_out=16)
        return model, (1, 16, 16, 8), (1, 16, 16, 16)
    width = shape["width"]
    model = chain(nn, shape["operations"], width, run.get("relaxed", False))
    return model, (1, width), (1, width)


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


def measure(nn, devices, run):
    """One RUN of a job."""
    model, shape_in, shape_out = build(nn, run)
    named = None if run.get("devices") is None else [devices[name] for name in run["devices"]]
    supported = None
    if named:
        n = 1 if run["model"].get("convolution") else len(run["model"]["operations"])
        flags = (C.c_bool * n)()
        ask = nn.Model_getSupportedOperationsForDevices
        assert ask(model.handle, handles(named), len(named), flags) == OK
        supported = list(flags)
    before = nn.emulator_now()
    compilation, code = model.try_compile(named, run.get("preference"))
    answer = {
        "finish": Result(code).name,
        "compile": nn.emulator_now() - before,
        "supported": supported,
        "wall": [],
        "hardware": [],
        "driver": [],
        "outputs": [],
    }
    rng = np.random.default_rng(3)
    data = rng.standard_normal(shape_in).astype(np.float32)
    for index in range(run.get("repeat", 1) if code == OK else 0):
        if run.get("change"):
            data = data + np.float32(index)
        output = np.full(shape_out, np.nan, np.float32)
        execution = prepared(nn, compilation, [data], [output])
        timed = nn.Execution_setMeasureTiming(execution, True) == OK
        start = nn.emulator_now()
        assert execute(nn, compilation, execution, run.get("mode", "sync")) == OK
        answer["wall"].append(nn.emulator_now() - start)
        answer["hardware"].append(duration(nn, execution, 0) if timed else None)
        answer["driver"].append(duration(nn, execution, 1) if timed else None)
        answer["outputs"].append([float(data.sum(dtype=np.float64)), float(output.sum())])
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()
    return answer


def perform(library, job):
    os.environ["NNAPI_EMULATOR_PHONE"] = str(job["phone"])
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
        "runs": [measure(nn, devices, run) for run in job.get("runs", [])],
        "cpu": [],
    }
    for call in job.get("cpu", []):
        n, before = len(call["codes"]), nn.emulator_now()
        works = (Work * n)(*[Work(*work) for work in call["works"]])
        nn.emulator_cpu_run((C.c_int32 * n)(*call["codes"]), works, n, call["threads"])
        answer["cpu"].append(nn.emulator_now() - before)
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

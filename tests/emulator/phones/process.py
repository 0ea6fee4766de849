"""Runs jobs on simulated phones, each in a process of its own: the library reads the description
once in a process. ``run_jobs`` starts one helper process, which forks for every job.

A job is {"phone": path, "env": {variables}, "runs": [RUN...], "cpu": [CPU...]}. RUN is {"model":
MODEL, "devices": [names] or None, "preference": 0..2 or None, "relaxed": bool, "mode": "sync" |
"async" | "burst", "repeat": n, "change": new inputs for each run, "cache": a folder, "idle": ns
before it}. MODEL is {"tensors": [[type, dims, scale, zero point, value]...], "steps": [[code,
inputs, outputs]...], "inputs": [one], "outputs": [...]}, where a value is None, 0 for zeros, or a
list. CPU is {"codes": [...], "works": [[macs, input, output, constant bytes, type]...], "threads":
n}. "lanes" is a list of RUNs and CPUs, each with "repeat", that run at once, a thread each. The
answer has the devices, what np_emulator_* tells, and for each RUN its result codes, times in ns,
and temperature and clock of the CPU after it.
"""

import ctypes as C
import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tests.emulator.nnapi import DTYPES, OK, Model, Nnapi, Op, Result, Work

REPO = Path(__file__).parents[3]


def run_jobs(library, jobs):
    """Answers of the jobs, in their order."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.emulator.phones.process", str(library)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def build(nn, run):
    """The model of a RUN, its input and its outputs."""
    shape, model = run["model"], Model(nn)
    for code, dims, scale, zero_point, value in shape["tensors"]:
        index = model.operand(code, dims, scale, zero_point)
        if value is not None:
            array = np.asarray(value, DTYPES[code])
            model.value(index, np.broadcast_to(array, dims) if dims else array)
    for code, inputs, outputs in shape["steps"]:
        model.operation(code, inputs, outputs)
    model.relax(run.get("relaxed", False))
    model.finish(shape["inputs"], shape["outputs"])
    ends = [shape["tensors"][index] for index in [*shape["inputs"], *shape["outputs"]]]
    data, *outputs = [np.zeros(dims, DTYPES[code]) for code, dims, *_ in ends]
    data += np.random.default_rng(3).uniform(-1, 1, data.shape).astype(data.dtype)
    return model, data, outputs


def time_of(nn, execution, code):
    result, ns = nn.duration(execution, code)
    return ns if result == OK else None


def measure(nn, devices, run):
    """One RUN of a job."""
    nn.emulator_idle(run.get("idle", 0))
    model, data, outputs = build(nn, run)
    named = None if run.get("devices") is None else [devices[name] for name in run["devices"]]
    answer = {key: [] for key in ("codes", "wall", "hardware", "driver", "outputs")}
    answer["supported"] = named and model.supported(named, len(run["model"]["steps"]))
    before = nn.emulator_now()
    compilation, code = model.try_compile(named, run.get("preference"), run.get("cache"))
    answer |= {"finish": Result(code).name, "compile": nn.emulator_now() - before}
    for index in range(run.get("repeat", 1) if code == OK else 0):
        if run.get("change"):
            data = data + np.float32(index)
        execution = nn.prepared(compilation, [data], outputs)
        timed = nn.Execution_setMeasureTiming(execution, True) == OK
        start = nn.emulator_now()
        result = nn.execute(compilation, execution, run.get("mode", "sync"))
        answer["wall"].append(nn.emulator_now() - start)
        answer["codes"].append(Result(result).name)
        answer["hardware"].append(time_of(nn, execution, 0) if timed else None)
        answer["driver"].append(time_of(nn, execution, 1) if timed else None)
        answer["outputs"].append([float(data.sum(dtype=np.float64)), float(outputs[0].sum())])
        nn.Execution_free(execution)
    nn.free_all()
    return {**answer, "temperature": nn.emulator_temperature(), "khz": nn.emulator_cpu_khz()}


def cpu_run(nn, call):
    """One run of a CPU, made ready."""
    n = len(call["codes"])
    codes, works = (C.c_int32 * n)(*call["codes"]), (Work * n)(*[Work(*w) for w in call["works"]])
    return lambda: nn.emulator_cpu_run(codes, works, n, call["threads"])


def nnapi_run(nn, devices, one):
    """One run of a RUN, made ready: gives its time, or the result where it fails."""
    model, data, outputs = build(nn, one)
    compilation = model.compile([devices[name] for name in one["devices"]])

    def run():
        execution = nn.prepared(compilation, [data], outputs)
        nn.Execution_setMeasureTiming(execution, True)
        result = nn.execute(compilation, execution, one.get("mode", "sync"))
        return time_of(nn, execution, 0) if result == OK else Result(result).name

    return run


def lane(nn, index, repeat, run):
    """The times of a lane."""
    answer = {"wall": [], "hardware": []}
    nn.emulator_enter(index)
    for _ in range(repeat):
        before = nn.emulator_now()
        answer["hardware"].append(run())
        answer["wall"].append(nn.emulator_now() - before)
    nn.emulator_leave()
    return answer


def together(nn, devices, lanes):
    """The times of lanes that run at once, and the process's clock and drivers."""
    runs = [cpu_run(nn, one) if "codes" in one else nnapi_run(nn, devices, one) for one in lanes]
    before, drivers = nn.emulator_now(), nn.emulator_driver_ns()
    warm = nn.emulator_temperature()
    answer = {"begun": nn.emulator_lanes(len(lanes)), "again": nn.emulator_lanes(len(lanes))}
    with ThreadPoolExecutor(len(lanes)) as pool:
        begun = [
            pool.submit(lane, nn, index, one["repeat"], run)
            for index, (one, run) in enumerate(zip(lanes, runs, strict=True))
        ]
        answer["lanes"] = [one.result() for one in begun]
    answer["whole"] = nn.emulator_now() - before
    answer["drivers"] = nn.emulator_driver_ns() - drivers
    return {**answer, "temperatures": [warm, nn.emulator_temperature()]}


def perform(library, job):
    os.environ |= {"NNAPI_EMULATOR_PHONE": str(job["phone"]), **job.get("env", {})}
    nn = Nnapi(library)
    devices, model = nn.devices(), Model(nn)
    reversed_ = [model.tensor(3), model.constant(np.zeros(1, np.int32))], [model.tensor(3)]
    texts = {
        "phone": nn.emulator_phone(),
        "error": nn.emulator_error(),
        "identity": nn.emulator_identity(),
        "model": nn.emulator_property(b"ro.product.model"),
        "absent": nn.emulator_property(b"no.such.property"),
    }
    answer = {
        **{name: text.decode() if text is not None else None for name, text in texts.items()},
        "devices": list(devices),
        "levels": list(nn.levels().values()),
        "reverse": model.add_operation(Op.REVERSE, *reversed_),
        "start": nn.emulator_now(),
        "temperature": nn.emulator_temperature(),
        "runs": [measure(nn, devices, run) for run in job.get("runs", [])],
        "cpu": [],
    }
    for call in job.get("cpu", []):
        run, before = cpu_run(nn, call), nn.emulator_now()
        run()
        answer["cpu"].append(nn.emulator_now() - before)
    if "lanes" in job:
        answer["together"] = together(nn, devices, job["lanes"])
    return answer


def perform_in_a_child(library, job):
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: theirs.send(perform(library, job)))
    child.start()
    theirs.close()
    answer = ours.recv()  # EOFError where the child fails, which says why
    child.join()
    return answer


if __name__ == "__main__":
    json.dump([perform_in_a_child(sys.argv[1], job) for job in json.load(sys.stdin)], sys.stdout)

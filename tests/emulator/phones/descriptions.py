"""Descriptions of phones for tests: the flagship, quiet and cool, with single members changed."""

import json

from tests.emulator.nnapi import RELU, TENSOR_FLOAT32, TENSOR_QUANT8_ASYMM
from tests.emulator.phones.process import run_jobs
from tests.emulator.phones.test_clock import constant, load

SIGNED = 14  # TENSOR_QUANT8_ASYMM_SIGNED
N = 4096


def phone(*edits, accelerators=1):
    """The flagship without noise and heat, and with its first accelerators; `edits` change it."""
    description = load("npu-phone")
    description["noise"]["spread"]["value"] = 0
    del description["thermal"], description["cpu"]["heat"]
    description["accelerators"] = description["accelerators"][:accelerators]
    for edit in edits:
        edit(description)
    return description


def npu(**members):
    """An edit of the first accelerator; None removes a member."""

    def edit(made):
        for name, value in members.items():
            if value is None:
                made["accelerators"][0].pop(name, None)
            else:
                made["accelerators"][0][name] = value

    return edit


def root(**members):
    return lambda made: made.update(members)


def cpu(**members):
    return lambda made: made["cpu"].update(members)


def us(value):
    return constant(value, "us")


def ratio(value):
    return constant(value, "ratio")


def operations(**members):
    return npu(operations={"except": [], "origin": "a test", **members})


def unary(code, dims, kind=TENSOR_FLOAT32, output=None):
    """One operation of one input."""
    scale = 0.1 if kind in (TENSOR_QUANT8_ASYMM, SIGNED) else 0.0
    tensors = [[k, dims, scale, 0, None] for k in (kind, output or kind)]
    return {"tensors": tensors, "steps": [[code, [0], [1]]], "inputs": [0], "outputs": [1]}


RELU_3 = {"operations": [RELU] * 3, "width": N}


class Jobs(dict):
    """The processes of a test module by name: {"description": phone, "runs": [...], ...}."""

    def __call__(self, name, made, *runs, **more):
        self[name] = {"description": made, "runs": list(runs), **more}

    def answers(self, library, folder):
        """What all of them answered, by name; one helper process runs them."""
        jobs = []
        for index, more in enumerate(self.values()):
            path = folder / f"{index}.json"
            path.write_text(json.dumps(more["description"]))
            rest = {key: value for key, value in more.items() if key != "description"}
            jobs.append({**rest, "phone": str(path)})
        return dict(zip(self, run_jobs(library, jobs), strict=True))


def on(model, *devices, **more):
    return {"model": model, "devices": list(devices) or ["sim-npu"], **more}


def rules(*patterns):
    return npu(fusion=[{"pattern": pattern, "origin": "a test"} for pattern in patterns])


AMBIENT, SECONDS = 25.0, 10.0


def thermal(*steps):
    """Throttling by (temperature, factor)."""
    throttle = [{"above": constant(t, "degC"), "factor": ratio(f)} for t, f in steps]
    return {
        "ambient": constant(AMBIENT, "degC"),
        "time_constant": constant(SECONDS, "s"),
        "throttle": throttle,
    }

"""Descriptions of phones for tests: the flagship, quiet and cool, with single members changed; what
runs on them; and how long that takes by PHONES.md."""

import json
from pathlib import Path

from nnapi_prof.nnapi.codes import OperationCode
from tests.emulator.nnapi import Op, T
from tests.emulator.phones.process import run_jobs

PHONES = Path(__file__).parents[3] / "device_agent" / "emulator" / "phones"
QUANT8 = (T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED)
N = 4096


def load(name):
    return json.loads((PHONES / f"{name}.json").read_text())


def quiet(name):
    """A shipped phone without noise."""
    made = load(name)
    made["noise"]["spread"]["value"] = 0
    return made


def phone(*edits, accelerators=1):
    """The flagship without noise and heat, and with its first accelerators; `edits` change it."""
    description = quiet("npu-phone")
    del description["thermal"], description["cpu"]["heat"]
    description["accelerators"] = description["accelerators"][:accelerators]
    for edit in edits:
        edit(description)
    return description


def at(path, **members):
    """An edit of the object at a path such as "accelerators.0"; None removes a member."""

    def edit(description):
        place = description
        for key in path.split(".") if path else ():
            place = place[int(key) if isinstance(place, list) else key]
        for name, value in members.items():
            if value is None:
                place.pop(name, None)
            else:
                place[name] = value

    return edit


def npu(**members):
    return at("accelerators.0", **members)


def root(**members):
    return at("", **members)


def cpu(**members):
    return at("cpu", **members)


def constant(value, unit, origin="assumed: a test"):
    return {"value": value, "unit": unit, "origin": origin}


def us(value):
    return constant(value, "us")


def ratio(value):
    return constant(value, "ratio")


def operations(**members):
    return npu(operations={"except": [], "origin": "a test", **members})


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


# ---- what runs -----------------------------------------------------------------------------------


def row(*codes, dims=(1, N), kind=T.TENSOR_FLOAT32):
    """A model of operations of one input in a row."""
    tensors = [[kind, dims, 0.1 if kind in QUANT8 else 0.0, 0, None]] * (len(codes) + 1)
    steps = [[code, [i], [i + 1]] for i, code in enumerate(codes)]
    return {"tensors": tensors, "steps": steps, "inputs": [0], "outputs": [len(codes)]}


RELU_3 = row(*[Op.RELU] * 3)
MACS = 16 * 16 * 16 * 72  # of the convolution below
IN, OUT, WEIGHTS = 16 * 16 * 8, 16 * 16 * 16, 16 * 72 + 16


SAME, VALID, NONE, RELU6 = 1, 2, 0, 3


class Network:
    """A network as a MODEL of process.py; all weights are zero."""

    def __init__(self, *dims, quantised=False):
        self.type = T.TENSOR_QUANT8_ASYMM if quantised else T.TENSOR_FLOAT32
        self.bias = T.TENSOR_INT32 if quantised else T.TENSOR_FLOAT32
        self.quantised, self.tensors, self.steps = quantised, [], []
        self.at = self.tensor(dims)

    def operand(self, code, dims, value=None, scale=0.0):
        self.tensors.append([code, dims, scale if self.quantised else 0.0, 0, value])
        return len(self.tensors) - 1

    def tensor(self, dims, value=None, scale=0.1):
        return self.operand(self.type, dims, value, scale)

    def scalars(self, *values):
        return [self.operand(T.INT32, [], value) for value in values]

    @property
    def shape(self):
        """Returns the shape that the last step gave."""
        return self.tensors[self.at][1]

    def step(self, code, inputs, dims, scale=0.1):
        self.at = self.tensor(dims, scale=scale)
        self.steps.append([code, inputs, [self.at]])

    def convolution(self, depth, kernel=1, stride=1, fuse=RELU6, *, padding=SAME, depthwise=False):
        n, *sizes, before = self.shape
        filters = self.tensor([1 if depthwise else depth, kernel, kernel, before], 0, 0.01)
        inputs = [self.at, filters, self.operand(self.bias, [depth], 0, 0.1 * 0.01)]
        inputs += self.scalars(padding, stride, stride, *([1] if depthwise else []), fuse)
        lost = kernel - 1 if padding == VALID else 0
        dims = [n, *(-(-(size - lost) // stride) for size in sizes), depth]
        self.step(Op.DEPTHWISE_CONV_2D if depthwise else Op.CONV_2D, inputs, dims)

    def model(self, *further):
        """Its outputs are that of the last step, and further ones."""
        ends = {"inputs": [0], "outputs": [self.at, *further]}
        return {"tensors": self.tensors, "steps": self.steps, **ends}


def convolution(before=None, after=(), read_twice=False, output_too=False):
    """[PAD +] CONV_2D [+ ADD or RELU...] over 16 x 16 x 8."""
    net = Network(1, 16, 16, 8)
    if before == Op.PAD:
        pads = net.operand(T.TENSOR_INT32, [4, 2], [[0, 0], [1, 1], [1, 1], [0, 0]])
        net.step(Op.PAD, [net.at, pads], [1, 18, 18, 8])
    net.convolution(16, 3, fuse=NONE, padding=VALID if before == Op.PAD else SAME)
    convolved = net.at
    for code in after:
        inputs = [net.at]
        if code == Op.ADD:
            inputs += [net.at if read_twice else net.tensor([16], 0), *net.scalars(NONE)]
        net.step(code, inputs, net.shape)
    return net.model(*([convolved] if output_too else []))


def on(model, *devices, **more):
    return {"model": model, "devices": list(devices) or ["sim-npu"], **more}


def auto(model, **more):
    """A run on what NNAPI chooses."""
    return {"model": model, "devices": None, **more}


def work(macs=0, input_bytes=0, output_bytes=0, kind=T.TENSOR_FLOAT32, threads=1, **more):
    """A run of one convolution on the CPU engine."""
    works = [[macs, input_bytes, output_bytes, 0, kind]]
    return {"codes": [Op.CONV_2D], "works": works, "threads": threads, **more}


class Jobs(dict):
    """The processes of a test module by name: {"description": phone, "runs": [...], ...}."""

    def __call__(self, name, description, *runs, **more):
        """Adds one; a description is that of a phone, a text, or the path of a file."""
        self[name] = {"description": description, "runs": list(runs), **more}

    def answers(self, library, folder):
        """What all of them answered, by name; one helper process runs them."""
        jobs = []
        for index, job in enumerate(self.values()):
            path = description = job["description"]
            if not isinstance(description, Path):
                path = folder / f"{index}.json"
                text = description if isinstance(description, str) else json.dumps(description)
                path.write_text(text)
            rest = {key: value for key, value in job.items() if key != "description"}
            jobs.append({**rest, "phone": str(path)})
        return dict(zip(self, run_jobs(library, jobs), strict=True))


# ---- how long it takes ---------------------------------------------------------------------------

FALLBACK = {"relaxed": "float32", "float16": "relaxed", "per_channel": "quant8"}


def by_data(constants, kind):
    """The constant of a kind of data: its own, or that of the kind it falls back to."""
    if "value" in constants:
        return constants["value"]
    while kind not in constants and kind != "default":
        kind = FALLBACK.get(kind, "default")
    return constants[kind]["value"]


def operation_ns(unit, code, macs, bytes_moved, kind="float32", speed_up=1.0):
    """PHONES.md: max(macs / (peak x efficiency), bytes / bandwidth) + operation_overhead."""
    name = code.name if isinstance(code, OperationCode) else code
    efficiency = unit["efficiency"].get(name, unit["efficiency"]["default"])["value"]
    compute = macs / (by_data(unit["peak"], kind) * efficiency * speed_up)
    memory = bytes_moved / unit["bandwidth"]["value"]
    return max(compute, memory) + unit["operation_overhead"]["value"] * 1e3


def row_ns(unit, codes, kind="float32"):
    return sum(operation_ns(unit, code, N, 8 * N, kind) for code in codes)


def transfer_ns(unit, n_bytes=8 * N):
    floor = unit.get("transfer_floor", {"value": 0})["value"] * 1e3
    return floor + n_bytes / unit["transfer_bandwidth"]["value"]


def invocation_ns(unit):
    return unit["invocation"]["value"] * 1e3


def whole_us(ns):
    """Returns a time as getDuration tells it: whole microseconds, rounded down."""
    return int(ns + 0.5) // 1000 * 1000

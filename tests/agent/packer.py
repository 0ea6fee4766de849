"""Requests for the agent, packed by hand as PROTOCOL.md says: independent of nnapi_prof.device."""

import hashlib
import json
import os
import struct
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

NONE = UNBOUNDED = 0xFFFFFFFF
TENSOR_FLOAT32, INT32 = 3, 1  # NNAPI operand codes
ADD, CONV_2D, MUL, RELU, TANH = 0, 3, 18, 19, 28  # NNAPI operation codes
SEGMENT, BLOB, RANDOM, ZERO = 0, 1, 2, 3
CPU, NNAPI = 0, 1
UNTIMED, CORUN, FRAMES, COPIES = 1, 2, 4, 8
BURST, ASYNC, POINTERS = 0x100, 0x200, 0x400  # of the bundle, not of the action's flags
ALL_CPUS = (1 << 64) - 1


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def padded(raw: bytes, unit: int = 4) -> bytes:
    return raw + bytes(-len(raw) % unit)


def container(sections: dict[str, bytes], kind: int = 1) -> bytes:
    offset = 16 + 24 * len(sections)
    table, body = b"", b""
    for tag, data in sections.items():
        body = padded(body, 8)
        at = offset + len(body)
        table += struct.pack("<4sIQQ", tag.encode(), zlib.crc32(data), at, len(data))
        body += data
    head = struct.pack("<4sHHI", b"NNPF", 1, kind, len(sections))
    return head + words(zlib.crc32(head + table)) + table + body


def ports(tensors: Sequence[int]) -> bytes:
    """Tensors, each with an order of 0."""
    return words(len(tensors), *(word for tensor in tensors for word in (tensor, 0)))


def ends(tensors: Sequence[int]) -> bytes:
    """Inputs or outputs of a bundle, all of one name."""
    return words(len(tensors), *(word for tensor in tensors for word in (0, tensor, 0)))


def texts(strings: Sequence[str]) -> bytes:
    raws = [text.encode() for text in strings]
    return words(len(raws)) + b"".join(words(len(raw)) + padded(raw) for raw in raws)


@dataclass
class Model:
    """A serialized model under construction."""

    operands: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    values: list[tuple[int, int, bytes]] = field(default_factory=list)
    operations: list[tuple[int, list[int], list[int]]] = field(default_factory=list)

    def tensor(self, *dims: int, kind: int = TENSOR_FLOAT32) -> int:
        self.operands.append((kind, dims))
        return len(self.operands) - 1

    def scalar(self, value: int) -> int:
        index = self.tensor(kind=INT32)
        self.values.append((index, 0, struct.pack("<i", value)))
        return index

    def buffered(self, buffer: int, *dims: int) -> int:
        """A float constant that is the whole of a numbered buffer."""
        index = self.tensor(*dims)
        self.values.append((index, 2, words(buffer, 0, 4 * int(np.prod(dims)))))
        return index

    def add(self, code: int, inputs: list[int], *dims: int) -> int:
        output = self.tensor(*dims)
        self.operations.append((code, inputs, [output]))
        return output

    def pack(self, inputs: list[int], outputs: list[int]) -> bytes:
        parts = (self.operands, self.values, self.operations, inputs, outputs)
        rows = [words(1, *map(len, parts))]
        rows += [struct.pack("<iIfi", kind, len(d), 0.0, 0) for kind, d in self.operands]
        rows += [words(index, source, len(raw)) for index, source, raw in self.values]
        rows += [words(code, len(i), len(o)) for code, i, o in self.operations]
        rows += [words(*dims) for _, dims in self.operands]
        rows += [padded(raw) for _, _, raw in self.values]
        rows += [words(*i, *o) for _, i, o in self.operations]
        return b"".join(rows) + words(*inputs, *outputs)


def unary(code: int, *dims: int) -> bytes:
    """y = code(x)."""
    model = Model()
    x = model.tensor(*dims)
    return model.pack([x], [model.add(code, [x], *dims)])


@dataclass
class Tensor:
    """A float tensor of an action."""

    source: int
    dims: tuple[int, ...]
    value: int
    keep: bool


def tensor(source: int, *dims: int, value: int = 0, keep: bool = False) -> Tensor:
    return Tensor(source, dims, value, keep)


@dataclass
class Segment:
    """A segment of an action."""

    engine: int
    model: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    accelerator: str | None = None
    preference: int = NONE
    relaxed: bool = False

    def pack(self, strings: list[str]) -> bytes:
        accelerator = strings.index(self.accelerator) if self.accelerator else NONE
        row = words(self.engine, accelerator, self.preference, int(self.relaxed), self.model)
        return row + ports(self.inputs) + ports(self.outputs)


@dataclass
class Frames:
    """Plans that run many frames at once, by their segments and shares: an action with FRAMES."""

    in_flight: int
    variants: int
    plans: tuple[tuple[int, float], ...]
    overlaps: bool = False


@dataclass
class Request:
    blobs: list[bytes] = field(default_factory=list)
    models: list[tuple[bytes, list[int]]] = field(default_factory=list)
    actions: list[bytes] = field(default_factory=list)
    """Each up to its bundle's place, then what follows it, see :meth:`pack`."""
    bundles: list[dict[str, bytes]] = field(default_factory=list)
    rests: list[bytes] = field(default_factory=list)

    def blob(self, data: bytes | np.ndarray) -> int:
        self.blobs.append(data.astype("<f4").tobytes() if isinstance(data, np.ndarray) else data)
        return len(self.blobs) - 1

    def model(self, serialized: bytes, buffers: Sequence[int] = ()) -> int:
        model = (serialized, list(buffers))
        if model not in self.models:
            self.models.append(model)
        return self.models.index(model)

    def unary(
        self,
        engine: int,
        *dims: int,
        code: int = RELU,
        source: int = RANDOM,
        value: int = 0,
        keep: bool = True,
        accelerator: str | None = None,
        preference: int = NONE,
        relaxed: bool = False,
        **options: Any,
    ) -> int:
        """An action that runs one operation, else with random numbers of the seed ``value``."""
        tensors = [tensor(source, *dims, value=value), tensor(SEGMENT, *dims, keep=keep)]
        model = self.model(unary(code, *dims))
        segment = Segment(engine, model, [0], [1], accelerator, preference, relaxed)
        return self.action(tensors, [segment], **options)

    def action(
        self,
        tensors: list[Tensor],
        segments: list[Segment],
        *,
        id: int | None = None,
        timeout_ms: int = 20000,
        flags: int = 0,
        threads: int = 1,
        mask: int = ALL_CPUS,
        memory_kb: int = 0,
        group: int = 0,
        warmup: int | tuple[int, int] = 1,
        warmup_ns: int = 0,
        warm_ns: int = 0,
        spin_ns: int = 0,
        rounds: int = 1,
        runs: tuple[int, int] = (3, 3),
        budget_ns: int = 0,
        cooldown_ms: int = 0,
        frames: Frames | None = None,
    ) -> int:
        number = len(self.actions) if id is None else id
        warm = (warmup, warmup) if isinstance(warmup, int) else warmup
        self.actions.append(
            struct.pack(
                "<IIIIIIIQQQIIIQIII",
                *(number, timeout_ms, flags & 0xFF, memory_kb, group),
                *(*warm, warmup_ns, warm_ns, spin_ns, rounds, *runs, budget_ns, cooldown_ms),
                *((frames.in_flight, frames.variants) if frames else (0, 0)),
            )
        )
        weights: dict[int, int] = {}
        end = 0
        for blob in [blob for _, buffers in self.models for blob in buffers]:
            if blob not in weights:
                weights[blob] = end
                end += (len(self.blobs[blob]) + 63) // 64 * 64
        cores = {ALL_CPUS: 0, 0: 1}.get(mask, 2)
        kept_to = (cores, mask if cores == 2 else 0)
        mode = 1 if flags & BURST else 2 if flags & ASYNC else 0
        head = words(1, mode, threads)
        conditions = struct.pack("<IIQQQI", 1, *kept_to, 0, 0, bool(flags & POINTERS))
        bundle = self._bundle(tensors, segments, weights, frames)
        self.bundles.append({"HEAD": head, "COND": conditions, **bundle})
        inputs = [t for t in tensors if t.source != SEGMENT]
        outputs = [i for i, t in enumerate(tensors) if t.keep]
        self.rests.append(
            words(len(weights))
            + b"".join(struct.pack("<IQ", *weight) for weight in weights.items())
            + words(len(inputs), *(word for t in inputs for word in (t.source, t.value)))
            + words(len(outputs), *outputs)
        )
        return number

    def _bundle(self, tensors, segments, weights, frames) -> dict[str, bytes]:
        """The sections of an action's bundle; weights are places by their blobs."""
        data, modl = b"", words(len(self.models))
        for serialized, buffers in self.models:
            data = padded(data, 4)
            modl += struct.pack("<QQ", len(data), len(serialized)) + words(len(buffers))
            for blob in buffers:
                modl += struct.pack("<QQ", weights[blob], len(self.blobs[blob]))
            data += serialized
        strings = ["", *dict.fromkeys(s.accelerator for s in segments if s.accelerator)]
        rows = [segment.pack(strings) for segment in segments]
        plans = frames.plans if frames else ((len(rows), 1.0),)
        plan, first = words(len(plans)), 0
        for n_segments, _ in plans:
            plan += words(0, n_segments) + b"".join(rows[first : first + n_segments])
            first += n_segments
        sections = {
            "STRS": texts(strings),
            "TENS": words(len(tensors))
            + b"".join(words(TENSOR_FLOAT32, len(t.dims), *t.dims, 0, 0) for t in tensors),
            "MODL": modl,
            "PLAN": plan,
            "INPT": ends([i for i, t in enumerate(tensors) if t.source != SEGMENT]),
            "OUTP": ends([i for i, t in enumerate(tensors) if t.source == SEGMENT and t.keep]),
            "DATA": data,
        }
        if frames:
            rows = [struct.pack("<Id", p, share) for p, (_, share) in enumerate(plans)]
            sections["MIXT"] = words(1, len(plans)) + b"".join(rows)
            if frames.overlaps:
                sections["OVLP"] = words(len(plans), *range(len(plans)))
        return sections

    def sections(self) -> dict[str, bytes]:
        blob = words(len(self.blobs))
        for raw in self.blobs:
            blob += struct.pack("<Q", len(raw)) + hashlib.sha256(raw).digest()
        data, actn = b"", words(len(self.actions))
        for head, bundle, rest in zip(self.actions, self.bundles, self.rests, strict=True):
            data, raw = padded(data, 8), container(bundle, kind=3)
            actn += head + struct.pack("<QQ", len(data), len(raw)) + rest
            data += raw
        return {"HEAD": words(5, 0, NONE, 0), "BLOB": blob, "DATA": data, "ACTN": actn}

    def pack(self) -> bytes:
        return container(self.sections())


def relus(*engines: int, **options: Any) -> Request:
    """A request with a relu of four numbers on each engine."""
    request = Request()
    for engine in engines:
        request.unary(engine, 4, **options)
    return request


def of_a_blob() -> Request:
    """A request with a relu of four numbers that are a blob."""
    request = Request()
    request.unary(CPU, 4, source=BLOB, value=request.blob(np.arange(4)))
    return request


def pseudo_random(seed: int, *dims: int) -> np.ndarray:
    """PROTOCOL.md's pseudo-random floats."""
    mask = (1 << 64) - 1
    state, values = seed, []
    for _ in range(int(np.prod(dims))):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        values.append(((z ^ z >> 31) >> 40) / 2**23 - 1)
    return np.array(values, np.float32).reshape(dims)


def positive(seed: int, *dims: int) -> np.ndarray:
    """The relu of pseudo-random floats."""
    return np.maximum(pseudo_random(seed, *dims), 0)


@dataclass
class Answer:
    exit_code: int
    lines: list[dict[str, Any]]
    stderr: str
    work: Path

    @property
    def types(self) -> list[str]:
        return [line["type"] for line in self.lines]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == kind]

    @property
    def results(self) -> list[dict[str, Any]]:
        return self.of_type("result")

    @property
    def error(self) -> str:
        (line,) = self.of_type("error")
        return str(line["message"])

    def output(self, result: dict[str, Any], index: int, *dims: int) -> np.ndarray:
        """A kept tensor, whose hash is checked."""
        output = result["outputs"][index]
        raw = (self.work / output["file"]).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == output["sha256"]
        assert len(raw) == output["n_bytes"]
        return np.frombuffer(raw, "<f4").reshape(dims)


class Agent:
    """The built agent with a store and a work folder of its own."""

    def __init__(self, binary: Path, library: Path, folder: Path) -> None:
        self.binary = binary
        self.library: Path | str = library
        self.store, self.work = folder / "store", folder / "work"
        self.request_path = folder / "request"
        # A build with sanitizers leaves the crashes of these tests to the kernel, too, and keeps no
        # freed memory back.
        options = "handle_segv=0:handle_sigbus=0:quarantine_size_mb=0"
        self.env = {"ASAN_OPTIONS": options, **os.environ}
        self.store.mkdir()
        self.work.mkdir()

    def simulate(self, phone: Path | dict[str, Any]) -> Path:
        """Makes it the phone of a file, or of a description, and returns the file."""
        path = phone if isinstance(phone, Path) else self.request_path.with_name("phone.json")
        if not isinstance(phone, Path):
            path.write_text(json.dumps(phone))
        self.env["NNAPI_EMULATOR_PHONE"] = str(path)
        return path

    def fault(self, kind: str, at: str) -> None:
        """Sets the fault of the fixture ``faulty``'s library, and when it happens: see faulty.c."""
        self.env |= {"NP_FAULT": kind, "NP_FAULT_AT": at}

    def push(self, request: Request) -> None:
        for raw in request.blobs:
            (self.store / hashlib.sha256(raw).hexdigest()).write_bytes(raw)

    def command(self, request: bytes) -> list[str]:
        self.request_path.write_bytes(request)
        words = [self.binary, "run", self.request_path, "--store", self.store, "--work", self.work]
        return [str(word) for word in (*words, "--nnapi-library", self.library)]

    def call(self, *arguments: object, **how: Any) -> Answer:
        """Runs the agent; ``how`` are options of subprocess.run in place of the usual ones."""
        command = [str(self.binary), *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60}
        done = subprocess.run(command, env=self.env, **(pipes | how))
        text = (done.stdout or b"").decode().splitlines()
        lines = [json.loads(line) for line in text if not line.startswith("nnapi-prof agent ")]
        return Answer(done.returncode, lines, (done.stderr or b"").decode(), self.work)

    def info(self) -> dict[str, Any]:
        """Returns the answer of ``agent info``, which never fails."""
        answer = self.call("info", "--nnapi-library", self.library)
        (line,) = answer.lines
        assert answer.exit_code == 0
        return line

    def run_bytes(self, request: bytes, **how: Any) -> Answer:
        return self.call(*self.command(request)[1:], **how)

    def run(self, request: Request, **how: Any) -> Answer:
        self.push(request)
        return self.run_bytes(request.pack(), **how)

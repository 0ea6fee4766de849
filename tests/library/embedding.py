"""What the tests of the runtime library share: its C API through ctypes, and bundles to run."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nnapi_prof.bundle import Bundle, needed_regions
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.graph.plan import Plan
from nnapi_prof.graph.program import Program

BURST, ASYNC, POINTERS, CPU_FALLBACK, DURATIONS, AS_MEASURED, TRIAL = 1, 2, 4, 8, 16, 32, 64
UNKNOWN_NS = FOREVER = NO_FRAME = 2**64 - 1
MIXTURE = 2**32 - 1
BUSY = 8


@dataclass(frozen=True)
class Built:
    """The library and the programs that use it."""

    shared: Path
    prefix: Path
    """Where it is installed."""
    classify: Path
    """Against the sources' shared library."""
    classify_static: Path
    classify_installed: Path
    """Against the installed shared library, found by find_package."""


@dataclass(frozen=True)
class Sample:
    """A bundle, and what eager PyTorch says."""

    bundle: Bundle
    program: Program
    image: torch.Tensor
    expected: torch.Tensor


def make_bundle(program: Program, plans: tuple[Plan, ...]) -> Bundle:
    """A bundle without files."""
    levels = {s.target.key: 30 for plan in plans for s in plan.segments}
    return Bundle(
        model="small",
        model_file="model.pt",
        inputs=("1x3x12x10:float32",),
        device="a device",
        fingerprint="f00",
        simulated=False,
        graph=program.units,
        plans=plans,
        levels=levels,
        regions={key: convert_region(program, *key) for key in needed_regions(plans, levels)},
    )


class Error(ctypes.Structure):
    _fields_ = [
        ("status", ctypes.c_int),
        ("segment", ctypes.c_int32),
        ("nnapi_code", ctypes.c_int32),
        ("message", ctypes.c_char * 320),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("dims", ctypes.c_uint32 * 8),
        ("dim_order", ctypes.c_uint32 * 8),
        ("scale", ctypes.c_float),
        ("zero_point", ctypes.c_int32),
        ("n_bytes", ctypes.c_size_t),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("plan", ctypes.c_uint32),
        ("segment", ctypes.c_uint32),
        ("accelerator", ctypes.c_char_p),
        ("cause", ctypes.c_int),
        ("nnapi_code", ctypes.c_int32),
        ("message", ctypes.c_char_p),
    ]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Event))


class Options(ctypes.Structure):
    _fields_ = [
        ("plan", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("cpu_mask", ctypes.c_uint64),
        ("nnapi_library", ctypes.c_char_p),
        ("folder", ctypes.c_char_p),
        ("compile_limit_ns", ctypes.c_uint64),
        ("run_limit_ns", ctypes.c_uint64),
        ("priority", ctypes.c_int32),
        ("cache_folder", ctypes.c_char_p),
        ("log", LOG),
        ("log_context", ctypes.c_void_p),
        ("trial_helper", ctypes.c_char_p),
        ("trial_start", ctypes.c_void_p),
        ("trial_context", ctypes.c_void_p),
    ]


class SegmentFacts(ctypes.Structure):
    _fields_ = [
        ("engine", ctypes.c_char_p),
        ("accelerator", ctypes.c_char_p),
        ("preference", ctypes.c_int32),
        ("fell_back", ctypes.c_int32),
        ("cause", ctypes.c_int),
        ("why", ctypes.c_char_p),
        ("shared_memory", ctypes.c_int32),
        ("n_xnnpack", ctypes.c_uint32),
        ("n_portable", ctypes.c_uint32),
        ("compile_ns", ctypes.c_uint64),
        ("first_ns", ctypes.c_uint64),
        ("last_ns", ctypes.c_uint64),
        ("hardware_ns", ctypes.c_uint64),
        ("driver_ns", ctypes.c_uint64),
    ]


class Unit(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("segment", ctypes.c_uint32),
        ("engine", ctypes.c_char_p),
        ("accelerator", ctypes.c_char_p),
        ("share", ctypes.c_double),
        ("fell_back", ctypes.c_int32),
        ("cause", ctypes.c_int),
        ("why", ctypes.c_char_p),
    ]


class QueueOptions(ctypes.Structure):
    _fields_ = [("model", Options), ("frames", ctypes.c_uint32), ("nnapi_mask", ctypes.c_uint64)]


class Frame(ctypes.Structure):
    _fields_ = [
        ("number", ctypes.c_uint64),
        ("plan", ctypes.c_uint32),
        ("latency_ns", ctypes.c_uint64),
    ]


class Span(ctypes.Structure):
    _fields_ = [
        ("lane", ctypes.c_uint32),
        ("begin_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("hardware_ns", ctypes.c_uint64),
        ("driver_ns", ctypes.c_uint64),
    ]


class Lane(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("engine", ctypes.c_char_p),
        ("n_segments", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
    ]


class RuntimeFailure(Exception):
    def __init__(self, error: Error) -> None:
        super().__init__(error.message.decode())
        self.status = error.status
        self.segment = error.segment


class Runtime:
    """The shared library and one open bundle."""

    def __init__(self, library: Path, content: bytes, emulator: Path) -> None:
        self.library = load(library)
        self.emulator = emulator
        # 64 bytes is what a mapped file has.
        room = ctypes.create_string_buffer(len(content) + 64)
        offset = -ctypes.addressof(room) % 64
        ctypes.memmove(ctypes.addressof(room) + offset, content, len(content))
        self._room = room
        self.bundle = ctypes.c_void_p()
        self.check(
            "nnp_bundle_open_memory",
            ctypes.c_void_p(ctypes.addressof(room) + offset),
            ctypes.c_size_t(len(content)),
            ctypes.byref(self.bundle),
        )

    def check(self, name: str, *arguments: object) -> None:
        """Calls a function whose last parameter is the error."""
        error = Error()
        if getattr(self.library, name)(*arguments, ctypes.byref(error)) != 0:
            raise RuntimeFailure(error)

    def inputs(self) -> list[Tensor]:
        count = self.library.nnp_bundle_n_inputs(self.bundle)
        return [self.library.nnp_bundle_input(self.bundle, i).contents for i in range(count)]

    def outputs(self) -> list[Tensor]:
        count = self.library.nnp_bundle_n_outputs(self.bundle)
        return [self.library.nnp_bundle_output(self.bundle, i).contents for i in range(count)]

    def plans(self) -> list[str]:
        count = self.library.nnp_bundle_n_plans(self.bundle)
        return [self.library.nnp_bundle_plan(self.bundle, i).decode() for i in range(count)]

    def model(
        self,
        plan: int = 0,
        flags: int = 0,
        threads: int = 0,
        cpu_mask: int = 0,
        library: str | None = None,
        **further: object,
    ) -> Model:
        options = Options(
            plan, flags, threads, cpu_mask, (library or str(self.emulator)).encode(), None
        )
        for name, value in further.items():
            setattr(options, name, value)
        return Model(self, options)

    def select(self, frame: int) -> int:
        return int(self.library.nnp_bundle_select(self.bundle, ctypes.c_uint64(frame)))

    def queue(
        self, plan: int = MIXTURE, flags: int = 0, frames: int = 0, cpu_mask: int = 0
    ) -> Queue:
        emulator = str(self.emulator).encode()
        return Queue(self, QueueOptions(Options(plan, flags, 0, cpu_mask, emulator, None), frames))


class Model:
    def __init__(self, runtime: Runtime, options: Options) -> None:
        self.runtime = runtime
        self.library = runtime.library
        self.handle = ctypes.c_void_p()
        runtime.check(
            "nnp_model_compile", runtime.bundle, ctypes.byref(options), ctypes.byref(self.handle)
        )

    def run(
        self, inputs: Sequence[NDArray[np.generic]] | None, n_bytes: Sequence[int] = ()
    ) -> list[bytes]:
        """Runs with buffers of the caller's."""
        outputs = [np.zeros(n, np.uint8) for n in n_bytes]
        self.runtime.check(
            "nnp_model_run",
            self.handle,
            None if inputs is None else _pointers([a.ctypes.data for a in inputs]),
            _pointers([a.ctypes.data for a in outputs]) if outputs else None,
        )
        return [a.tobytes() for a in outputs]

    def run_addresses(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.runtime.check("nnp_model_run", self.handle, _pointers(inputs), _pointers(outputs))

    def write_input(self, index: int, data: bytes) -> None:
        ctypes.memmove(self.library.nnp_model_input(self.handle, index), data, len(data))

    def read_output(self, index: int, n_bytes: int) -> bytes:
        return ctypes.string_at(self.library.nnp_model_output(self.handle, index), n_bytes)

    def segments(self) -> list[SegmentFacts]:
        items = []
        for index in range(self.library.nnp_model_n_segments(self.handle)):
            facts = SegmentFacts()
            assert self.library.nnp_model_segment(self.handle, index, ctypes.byref(facts)) == 0
            items.append(facts)
        return items

    def units(self) -> list[Unit]:
        n = self.library.nnp_model_describe(self.handle, None, 0)
        units = (Unit * n)()
        assert self.library.nnp_model_describe(self.handle, units, n) == n
        return list(units)

    def line(self) -> str:
        text = ctypes.create_string_buffer(1024)
        self.library.nnp_model_describe_line(self.handle, text, ctypes.c_size_t(len(text)))
        return text.value.decode()

    def first_ns(self) -> int:
        return int(self.library.nnp_model_first_ns(self.handle))

    def last_ns(self) -> int:
        return int(self.library.nnp_model_last_ns(self.handle))

    def free(self) -> None:
        self.library.nnp_model_free(self.handle)


class Queue:
    """One thread submits and waits."""

    def __init__(self, runtime: Runtime, options: QueueOptions) -> None:
        self.runtime = runtime
        self.library = runtime.library
        self.handle = ctypes.c_void_p()
        runtime.check(
            "nnp_queue_open", runtime.bundle, ctypes.byref(options), ctypes.byref(self.handle)
        )

    def submit(
        self,
        inputs: Sequence[NDArray[np.generic]] | None,
        outputs: Sequence[NDArray[np.generic]] | None = None,
        timeout_ns: int = 0,
    ) -> None:
        """The arrays must live until the frame is handed out."""
        self.runtime.check(
            "nnp_queue_submit",
            self.handle,
            None if inputs is None else _pointers([a.ctypes.data for a in inputs]),
            None if outputs is None else _pointers([a.ctypes.data for a in outputs]),
            ctypes.c_uint64(timeout_ns),
        )

    def write_input(self, index: int, data: bytes) -> None:
        ctypes.memmove(self.library.nnp_queue_input(self.handle, index), data, len(data))

    def wait(self, timeout_ns: int = FOREVER) -> Frame:
        frame = Frame()
        self.runtime.check(
            "nnp_queue_wait", self.handle, ctypes.c_uint64(timeout_ns), ctypes.byref(frame)
        )
        return frame

    def output(self, index: int, n_bytes: int) -> bytes:
        return ctypes.string_at(self.library.nnp_queue_output(self.handle, index), n_bytes)

    def spans(self, n_segments: int) -> list[Span]:
        spans = [Span() for _ in range(n_segments)]
        for index, span in enumerate(spans):
            assert self.library.nnp_queue_span(self.handle, index, ctypes.byref(span)) == 0
        return spans

    def lanes(self) -> list[Lane]:
        lanes = [Lane() for _ in range(self.library.nnp_queue_n_lanes(self.handle))]
        for index, lane in enumerate(lanes):
            assert self.library.nnp_queue_lane(self.handle, index, ctypes.byref(lane)) == 0
        return lanes

    def close(self) -> None:
        self.library.nnp_queue_close(self.handle)


def load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    tensor = ctypes.POINTER(Tensor)
    for name, result in {
        "nnp_bundle_input": tensor,
        "nnp_bundle_output": tensor,
        "nnp_bundle_plan": ctypes.c_char_p,
        "nnp_model_input": ctypes.c_void_p,
        "nnp_model_output": ctypes.c_void_p,
        "nnp_model_first_ns": ctypes.c_uint64,
        "nnp_model_last_ns": ctypes.c_uint64,
        "nnp_version": ctypes.c_char_p,
        "nnp_bundle_close": None,
        "nnp_model_free": None,
        "nnp_bundle_share": ctypes.c_double,
        "nnp_queue_input": ctypes.c_void_p,
        "nnp_queue_output": ctypes.c_void_p,
        "nnp_queue_close": None,
    }.items():
        getattr(library, name).restype = result
    return library


def _pointers(addresses: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(addresses))(*(a or None for a in addresses))

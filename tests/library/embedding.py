"""What the tests of the runtime library share: its C API through ctypes, and bundles to run."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nnapi_prof.bundle import Bundle, needed_regions
from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Plan, Segment, Target
from nnapi_prof.graph.program import Program

BURST, ASYNC, POINTERS, CPU_FALLBACK, DURATIONS, AS_MEASURED, TRIAL = 1, 2, 4, 8, 16, 32, 64
UNKNOWN_NS = FOREVER = 2**64 - 1
MIXTURE = 2**32 - 1


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


def plan_of(name: str, *segments: tuple[Sequence[int], Target]) -> Plan:
    """A plan of units and their targets."""
    return Plan(name, tuple(Segment(tuple(u), t, 1e6, "a test") for u, t in segments), False)


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


def in_two_segments(first: Target) -> tuple[Bundle, nn.Module, torch.Tensor]:
    """An image that lies channels last on a target, scores of the CPU; with the model and image."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Flatten(), nn.Linear(8 * 36, 5))
    image = torch.randn(1, 3, 8, 8)
    program = prepare(model.eval(), (image,), "small")
    units = range(len(program.units.units))
    plan = plan_of("mixed", (units[:1], first), (units[1:], CPU))
    return make_bundle(program, (plan,)), model, image


INT, I32, U32, U64 = ctypes.c_int, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64
TEXT, POINTER, SIZE = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t


def _fields(**types: Any) -> list[tuple[str, Any]]:
    """Returns a structure's fields, in the header's order."""
    return list(types.items())


class Error(ctypes.Structure):
    _fields_ = _fields(status=INT, segment=I32, nnapi_code=I32, message=ctypes.c_char * 320)


class Tensor(ctypes.Structure):
    _fields_ = [
        *_fields(name=TEXT, type=I32, rank=U32, dims=U32 * 8, dim_order=U32 * 8),
        *_fields(scale=ctypes.c_float, zero_point=I32, n_bytes=SIZE),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        *_fields(plan=U32, segment=U32, accelerator=TEXT, cause=INT, nnapi_code=I32),
        *_fields(message=TEXT),
    ]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Event))


class Options(ctypes.Structure):
    _fields_ = [
        *_fields(plan=U32, flags=U32, threads=U32, cpu_mask=U64, nnapi_library=TEXT),
        *_fields(folder=TEXT, compile_limit_ns=U64, run_limit_ns=U64, priority=I32),
        *_fields(cache_folder=TEXT, log=LOG, log_context=POINTER, trial_helper=TEXT),
        *_fields(trial_start=POINTER, trial_context=POINTER),
    ]


class SegmentFacts(ctypes.Structure):
    _fields_ = [
        *_fields(engine=TEXT, accelerator=TEXT, preference=I32, fell_back=I32, cause=INT),
        *_fields(why=TEXT, shared_memory=I32, n_xnnpack=U32, n_portable=U32, compile_ns=U64),
        *_fields(first_ns=U64, last_ns=U64, hardware_ns=U64, driver_ns=U64),
    ]


class Unit(ctypes.Structure):
    _fields_ = [
        *_fields(name=TEXT, segment=U32, engine=TEXT, accelerator=TEXT, share=ctypes.c_double),
        *_fields(fell_back=I32, cause=INT, why=TEXT),
    ]


class QueueOptions(ctypes.Structure):
    _fields_ = [("model", Options), ("frames", ctypes.c_uint32), ("nnapi_mask", ctypes.c_uint64)]


class Frame(ctypes.Structure):
    _fields_ = _fields(number=U64, plan=U32, latency_ns=U64)


class Span(ctypes.Structure):
    _fields_ = _fields(lane=U32, begin_ns=U64, end_ns=U64, hardware_ns=U64, driver_ns=U64)


class Lane(ctypes.Structure):
    _fields_ = _fields(name=TEXT, engine=TEXT, n_segments=U64, busy_ns=U64)


class RuntimeFailure(Exception):
    def __init__(self, error: Error) -> None:
        super().__init__(error.message.decode())
        self.status = error.status
        self.segment = error.segment


class Runtime:
    """The shared library and one open bundle."""

    def __init__(self, library: Path, content: bytes | Bundle, emulator: Path) -> None:
        content = content if isinstance(content, bytes) else runtime_bundle(content)
        self.library = load(library)
        self.emulator = emulator
        # 64 bytes is what a mapped file has.
        room = ctypes.create_string_buffer(len(content) + 64)
        offset = -ctypes.addressof(room) % 64
        ctypes.memmove(ctypes.addressof(room) + offset, content, len(content))
        self._room = room
        self.bundle = POINTER()
        memory = POINTER(ctypes.addressof(room) + offset)
        self.check("nnp_bundle_open_memory", memory, SIZE(len(content)), ctypes.byref(self.bundle))

    def check(self, name: str, *arguments: object) -> None:
        """Calls a function whose last parameter is the error."""
        error = Error()
        if getattr(self.library, name)(*arguments, ctypes.byref(error)) != 0:
            raise RuntimeFailure(error)

    def _all(self, kind: str) -> list[Any]:
        count = getattr(self.library, f"nnp_bundle_n_{kind}s")(self.bundle)
        get = getattr(self.library, f"nnp_bundle_{kind}")
        return [get(self.bundle, index) for index in range(count)]

    def inputs(self) -> list[Tensor]:
        return [each.contents for each in self._all("input")]

    def outputs(self) -> list[Tensor]:
        return [each.contents for each in self._all("output")]

    def plans(self) -> list[str]:
        return [each.decode() for each in self._all("plan")]

    def model(
        self,
        plan: int = 0,
        flags: int = 0,
        threads: int = 0,
        cpu_mask: int = 0,
        library: str | None = None,
        **further: object,
    ) -> "Model":
        emulator = (library or str(self.emulator)).encode()
        options = Options(plan, flags, threads, cpu_mask, emulator, None)
        for name, value in further.items():
            setattr(options, name, value)
        return Model(self, options)

    def select(self, frame: int) -> int:
        return int(self.library.nnp_bundle_select(self.bundle, U64(frame)))

    def queue(
        self, plan: int = MIXTURE, flags: int = 0, frames: int = 0, cpu_mask: int = 0
    ) -> "Queue":
        emulator = str(self.emulator).encode()
        return Queue(self, QueueOptions(Options(plan, flags, 0, cpu_mask, emulator, None), frames))


class Model:
    def __init__(self, runtime: Runtime, options: Options) -> None:
        self.runtime = runtime
        self.library = runtime.library
        self.handle = POINTER()
        both = ctypes.byref(options), ctypes.byref(self.handle)
        runtime.check("nnp_model_compile", runtime.bundle, *both)

    def run(
        self, inputs: Sequence[NDArray[np.generic]] | None, n_bytes: Sequence[int] = ()
    ) -> list[bytes]:
        """Runs with buffers of the caller's."""
        outputs = [np.zeros(n, np.uint8) for n in n_bytes]
        both = _data(inputs), _data(outputs or None)
        self.runtime.check("nnp_model_run", self.handle, *both)
        return [a.tobytes() for a in outputs]

    def run_addresses(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.runtime.check("nnp_model_run", self.handle, _pointers(inputs), _pointers(outputs))

    def write_input(self, index: int, data: bytes) -> None:
        ctypes.memmove(self.library.nnp_model_input(self.handle, index), data, len(data))

    def read_output(self, index: int, n_bytes: int) -> bytes:
        return ctypes.string_at(self.library.nnp_model_output(self.handle, index), n_bytes)

    def segments(self) -> list[SegmentFacts]:
        count = self.library.nnp_model_n_segments(self.handle)
        return filled(self.library.nnp_model_segment, self.handle, SegmentFacts, count)

    def units(self) -> list[Unit]:
        n = self.library.nnp_model_describe(self.handle, None, 0)
        units = (Unit * n)()
        assert self.library.nnp_model_describe(self.handle, units, n) == n
        return list(units)

    def line(self) -> str:
        text = ctypes.create_string_buffer(1024)
        self.library.nnp_model_describe_line(self.handle, text, SIZE(len(text)))
        return text.value.decode()

    def last_ns(self) -> int:
        return int(self.library.nnp_model_last_ns(self.handle))

    def free(self) -> None:
        self.library.nnp_model_free(self.handle)
        self.handle = None

    __del__ = free  # of NULL it does nothing


class Queue:
    """One thread submits and waits."""

    def __init__(self, runtime: Runtime, options: QueueOptions) -> None:
        self.runtime = runtime
        self.library = runtime.library
        self.handle = POINTER()
        both = ctypes.byref(options), ctypes.byref(self.handle)
        runtime.check("nnp_queue_open", runtime.bundle, *both)

    def submit(self, inputs: Sequence[NDArray[np.generic]]) -> None:
        """The arrays must live until the frame is handed out."""
        self.runtime.check("nnp_queue_submit", self.handle, _data(inputs), None, U64(0))

    def wait(self) -> Frame:
        frame = Frame()
        self.runtime.check("nnp_queue_wait", self.handle, U64(FOREVER), ctypes.byref(frame))
        return frame

    def output(self, index: int, n_bytes: int) -> bytes:
        return ctypes.string_at(self.library.nnp_queue_output(self.handle, index), n_bytes)

    def spans(self, n_segments: int) -> list[Span]:
        return filled(self.library.nnp_queue_span, self.handle, Span, n_segments)

    def lanes(self) -> list[Lane]:
        count = self.library.nnp_queue_n_lanes(self.handle)
        return filled(self.library.nnp_queue_lane, self.handle, Lane, count)

    def close(self) -> None:
        self.library.nnp_queue_close(self.handle)
        self.handle = None

    __del__ = close


def filled(get: Callable[..., int], handle: Any, kind: type[Any], count: int) -> list[Any]:
    """Structures that a function of the API fills, for each index below ``count``."""
    items = [kind() for _ in range(count)]
    for index, item in enumerate(items):
        assert get(handle, index, ctypes.byref(item)) == 0
    return items


def load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    tensor = ctypes.POINTER(Tensor)
    for result, names in (
        (tensor, "bundle_input bundle_output"),
        (TEXT, "bundle_plan version"),
        (POINTER, "model_input model_output queue_output"),
        (U64, "model_last_ns"),
        (ctypes.c_double, "bundle_share"),
        (None, "bundle_close model_free queue_close"),
    ):
        for name in names.split():
            getattr(library, f"nnp_{name}").restype = result
    return library


def _data(arrays: Sequence[NDArray[np.generic]] | None) -> ctypes.Array[ctypes.c_void_p] | None:
    return None if arrays is None else _pointers([array.ctypes.data for array in arrays])


def _pointers(addresses: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(addresses))(*(a or None for a in addresses))

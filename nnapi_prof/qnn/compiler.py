"""Compile graphs in worker processes with limits, and cache the answers.

Estimates are deterministic to the microsecond, so a cached one is exact. The key has everything
that an estimate depends on: the canonical graph (:func:`nnapi_prof.qnn.graphs.canonical_hash`), the
chip's number, the optimisation mode, and the versions of compiler and runtime.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import resource
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnapi_prof.qnn import compiler_versions
from nnapi_prof.toolchain import cache_dir

MODE = 3
"""``htp_graph_finalization_optimization_mode``. 1 is never used: its estimate is a hundred times
that of the others."""
BASE_S = 60.0
S_PER_MB = 1.0
"""Time limit of a graph: a minute, and a second for each megabyte of its weights."""
GRAPHS_EACH = 100
"""Number of graphs after which a worker is replaced, whatever its memory."""
MOST_RSS_KB = 2 << 20
MOST_MEMORY = 24 << 30
"""Bytes of address space of a worker: a graph that needs more has no estimate."""
ATTEMPTS = 3
"""Attempts for a graph, as a worker that dies may have been killed from outside."""
POLL_S = 1.0
PATIENCE = 10.0
"""Factor on time limits by the clock: they are CPU time, as other processes may use the core."""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A graph to compile for a chip."""

    path: Path
    graph_hash: str
    soc_model: int
    reasons: bool = False
    """Report why nodes stay on the CPU, which requires a verbose log."""
    context: Path | None = None
    """Path for the ONNX file with the chip's binary; such an answer is not cached."""

    @property
    def key(self) -> str:
        """The name of its answer in the cache."""
        stamp = {
            "graph": self.graph_hash,
            "soc_model": self.soc_model,
            "mode": MODE,
            "reasons": self.reasons,
            "format": 1,
            **compiler_versions(),
        }
        return hashlib.sha256(json.dumps(stamp, sort_keys=True).encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Nodes that the compiler takes or leaves together."""

    npu: bool
    nodes: tuple[tuple[str, str], ...]
    """Name and operation of each node."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiler's answer to a request; times in µs, like the simulator's."""

    us: int | None = None
    """Estimate; None for a phone's own number, after an error, or with nothing on the NPU."""
    low_us: int = 0
    high_us: int = 0
    spilled_bytes: int = 0
    missing: int = 0
    """Operations without a cost."""
    parts: tuple[GraphPart, ...] = ()
    error: str | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_npu(self) -> tuple[tuple[str, str], ...]:
        return tuple(node for part in self.parts if part.npu for node in part.nodes)

    @property
    def on_cpu(self) -> tuple[tuple[str, str], ...]:
        return tuple(node for part in self.parts if not part.npu for node in part.nodes)

    @property
    def subgraphs(self) -> int:
        """Parts on the NPU, each an invocation of its own."""
        return sum(part.npu for part in self.parts)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Compiled:
        """Reads a worker's answer."""
        estimates = answer["estimates"]
        parts = tuple(
            GraphPart(part["npu"], tuple((str(name), str(kind)) for name, kind in part["nodes"]))
            for part in answer["assigned"]
        )

        def total(name: str) -> int:
            return sum(int(each.get(name, 0)) for each in estimates)

        timed = bool(estimates) and answer["error"] is None
        return cls(
            us=total("us") if timed else None,
            low_us=total("low_us"),
            high_us=total("high_us"),
            spilled_bytes=total("spilled_bytes"),
            missing=total("missing"),
            parts=parts,
            error=answer["error"],
            reasons=dict(answer.get("reasons") or {}),
        )


class WorkerDied(Exception):
    """A worker that ended, or was ended, before it answered."""


class TooSlow(WorkerDied):
    """A graph that exceeded its time limit, as another attempt would, too."""


class _Worker:
    """One process, and the pipe of its answers."""

    def __init__(self, folder: Path) -> None:
        reading, writing = os.pipe()
        self._answers = os.fdopen(reading, "rb", buffering=0)
        self._log = folder / f"{threading.get_ident()}.log"
        self._rest = b""
        self.n_answered = 0
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nnapi_prof.qnn.worker", str(writing)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        os.close(writing)
        limit = (MOST_MEMORY, MOST_MEMORY)
        with contextlib.suppress(OSError):
            resource.prlimit(self.process.pid, resource.RLIMIT_AS, limit)

    @property
    def used_up(self) -> bool:
        return self.n_answered >= GRAPHS_EACH or _rss_kb(self.process.pid) > MOST_RSS_KB

    def ask(self, request: CompileRequest, timeout_s: float) -> dict[str, Any]:
        """Returns a request's answer. Raises WorkerDied, saying how, where none comes in time."""
        asked = {
            "onnx": str(request.path),
            "soc_model": request.soc_model,
            "mode": MODE,
            "reasons": request.reasons,
            "context": None if request.context is None else str(request.context),
            "log": str(self._log),
        }
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise WorkerDied(self._end()) from None
        began, cpu_s = time.monotonic(), _cpu_s(self.process.pid)
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], POLL_S)
            if not ready:
                busy = _cpu_s(self.process.pid) - cpu_s
                if busy > timeout_s or time.monotonic() - began > PATIENCE * timeout_s:
                    self.close()
                    raise TooSlow(f"the compiler did not finish in {timeout_s:.0f} s of a core")
                continue
            piece = self._answers.read(1 << 16)
            if not piece:
                raise WorkerDied(self._end())
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        self.n_answered += 1
        return dict(json.loads(line))

    def _end(self) -> str:
        self.close()
        code = self.process.returncode
        tail = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the compiler's process ended with {how}" + (f": {tail[0][:200]}" if tail else "")

    def close(self) -> None:
        """Ends the process, by its own id."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self._answers.close()


def _cpu_s(pid: int) -> float:
    """Returns the CPU time of a process in seconds; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_kb(pid: int) -> int:
    """Returns the resident memory of a process in kB; 0 where it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


class CompilerPool:
    """A pool of workers, which start at the first graph that is not cached."""

    def __init__(self, workers: int | None = None, cache: Path | None = None) -> None:
        self.n_compiled = 0
        """Number of graphs that were not cached."""
        self._cache = (cache or cache_dir()) / "qnn" / "estimates"
        self._idle: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-")
        self._size = workers or max(1, min(4, os.cpu_count() or 1))
        for _ in range(self._size):
            self._idle.put(None)

    def compile(self, requests: Sequence[CompileRequest]) -> list[Compiled]:
        """Compiles each request, equal ones once; returns answers in the order of the requests."""
        distinct = {request.key: request for request in requests}
        with ThreadPoolExecutor(self._size) as threads:
            answers = threads.map(self._one, distinct.values())
            done = dict(zip(distinct, answers, strict=True))
        return [done[request.key] for request in requests]

    def remembers(self, request: CompileRequest) -> bool:
        """Returns whether an answer is cached: the file of such a request is not read."""
        return self._recall(request) is not None

    def _recall(self, request: CompileRequest) -> Compiled | None:
        if request.context is None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return Compiled.of(json.loads(self._entry(request).read_text()))
        return None

    def _entry(self, request: CompileRequest) -> Path:
        return self._cache / f"{request.key}.json"

    def _one(self, request: CompileRequest) -> Compiled:
        if (remembered := self._recall(request)) is not None:
            return remembered
        megabytes = sum(_file_size(path) for path in _files(request.path)) / 1e6
        answer = self._ask(request, BASE_S + S_PER_MB * megabytes)
        if "died" in answer:  # perhaps killed from outside: not cached
            return Compiled(error=answer["died"])
        with self._lock:
            self.n_compiled += 1
        if request.context is None:
            _remember(self._entry(request), answer)
        return Compiled.of(answer)

    def _ask(self, request: CompileRequest, timeout_s: float) -> dict[str, Any]:
        died = ""
        for _ in range(ATTEMPTS):
            with self._worker() as worker:
                try:
                    return worker.ask(request, timeout_s)
                except TooSlow as error:
                    return {"died": str(error)}
                except WorkerDied as error:
                    died = str(error)
        return {"died": died}

    @contextmanager
    def _worker(self) -> Iterator[_Worker]:
        worker = self._idle.get()
        if worker is not None and worker.used_up:
            worker.close()
            worker = None
        if worker is None or worker.process.poll() is not None:
            worker = _Worker(Path(self._folder.name))
            with self._lock:
                self._workers.append(worker)
        try:
            yield worker
        finally:
            self._idle.put(worker if worker.process.poll() is None else None)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of running workers."""
        return tuple(w.process.pid for w in self._workers if w.process.poll() is None)

    def close(self) -> None:
        """Ends all workers."""
        for worker in self._workers:
            worker.close()
        self._folder.cleanup()

    def __enter__(self) -> CompilerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _remember(entry: Path, answer: Mapping[str, Any]) -> None:
    """Writes an answer whole or not at all; a cache that cannot be written only costs time."""
    answered = {name: value for name, value in answer.items() if name != "seconds"}
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft = entry.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        draft.write_text(json.dumps(answered))
        draft.replace(entry)


def _files(path: Path) -> Iterable[Path]:
    """Returns the paths of a graph and of its separate weights."""
    return (path, path.with_name(f"{path.name}.data"))


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

"""A phone behind 5 MB/s and 20 ms: what is sent takes a small part of the time."""

import contextlib
import socket
import subprocess
import threading
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

import nnapi_prof as np_
from tests import warm

pytestmark = pytest.mark.again("profiles a published network in real time")

ROOT = Path(__file__).resolve().parent.parent.parent
BYTES_PER_S = 5e6
ONE_WAY_S = 0.01


class SlowLink:
    """A proxy in front of a port: so many bytes a second each way, and as late."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self.n_bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                queue: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                threading.Thread(target=self._read, args=(source, queue), daemon=True).start()
                threading.Thread(target=self._write, args=(queue, sink), daemon=True).start()

    def _read(self, source: socket.socket, queue: SimpleQueue[tuple[float, bytes]]) -> None:
        free = 0.0
        data = b"-"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            self.n_bytes += len(data)
            free = max(free, time.monotonic()) + len(data) / BYTES_PER_S
            queue.put((free + ONE_WAY_S, data))
            time.sleep(max(free - time.monotonic() - 0.05, 0))

    def _write(self, queue: SimpleQueue[tuple[float, bytes]], sink: socket.socket) -> None:
        while True:
            due, data = queue.get()
            time.sleep(max(due - time.monotonic(), 0))
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._door.close()


def test_what_is_sent_takes_a_fifth_at_most(start_daemon, monkeypatch, tmp_path):
    daemon = start_daemon("")  # in real time: a simulated phone takes none to measure
    monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", daemon.remote_dir)
    model = tmp_path / "mobilenet_v2.pt"
    script = ROOT / "examples" / "models.py"
    subprocess.run([*warm.python(), script, "mobilenet_v2", model], check=True)
    loaded = np_.load(model, "1x3x224x224")
    how = dict(costs=tmp_path / "first.sqlite", options=np_.MeasureOptions(refine=False))
    with contextlib.closing(SlowLink(daemon.port)) as link:
        first = np_.profile(loaded, f"127.0.0.1:{link.port}", **how)
    weights = sum(unit.constant_bytes for unit in loaded.graph.units)
    assert link.n_bytes < 1.3 * weights + 4e6, "nothing is pushed twice; the agent is 2 MB"
    spent = first.outcome.spent_s
    assert spent["send"] <= 0.2 * sum(spent.values()), spent

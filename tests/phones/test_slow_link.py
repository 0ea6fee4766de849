"""A phone behind 5 MB/s and 20 ms: what is sent takes a small part of the time."""

import contextlib
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

import nnapi_prof as np_
from tests import warm

pytestmark = pytest.mark.again("profiles a published network in real time")

ROOT = Path(__file__).resolve().parent.parent.parent
BYTES_PER_S = 5e6
ONE_WAY_S = 0.01


class SlowLink:
    """A proxy in front of a port: at most so many bytes a second each way, and as late."""

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
                threading.Thread(target=self._move, args=(source, sink), daemon=True).start()

    def _move(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                self.n_bytes += len(data)
                time.sleep(max(ONE_WAY_S, len(data) / BYTES_PER_S))
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

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

"""Real adbd processes for tests: each a device of its own on a free port of 127.0.0.1.

A daemon gets what an Android device has and this host lacks: ``getprop`` (a stand-in on its PATH
that reads the daemon's own properties), and a ``/data/local/tmp`` of its own (a mount namespace,
as root or through a user namespace). adbd hands its environment to the shells it starts, so
LD_LIBRARY_PATH and NNAPI_EMULATOR_PHONE in it make our libneuralnetworks.so the phone's own.

With a root of tests/android/phone.py the device is an Android phone: nothing of the host is
visible on it, and its executables are those of the phone's ABI.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from adb_shell.adb_device import AdbDeviceTcp

RIG_DIR = Path(__file__).resolve().parent
START_TIMEOUT_S = 20.0
DATA_DIR = "/data/local/tmp"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LIBRARIES = "root/usr/lib/x86_64-linux-gnu"

PROPERTIES = {
    "ro.product.manufacturer": "nnapi-prof",
    "ro.product.model": "Test Phone",
    "ro.product.cpu.abi": "x86_64",
    "ro.build.version.sdk": "30",
    "ro.build.version.release": "11",
    "ro.build.fingerprint": "nnapi-prof/test/phone:11/RIG/1:userdebug/test-keys",
    "ro.board.platform": "rig",
    "ro.hardware": "rig",
}


class RigError(Exception):
    """The rig cannot be set up on this machine."""


def set_up(prefix: Path, script: Path = RIG_DIR / "setup_adbd.sh") -> Path:
    """Runs a script that fetches Debian packages into ``prefix``; a second call does nothing.

    Raises RigError with its words.
    """
    command, pipe, out = ["bash", script, prefix], subprocess.PIPE, subprocess.STDOUT
    result = subprocess.run(command, stdout=pipe, stderr=out, text=True, timeout=600, check=False)
    if result.returncode != 0:
        raise RigError(f"{script.name} failed in {prefix}:\n{result.stdout}")
    return prefix


def build_shim(prefix: Path, compiler: Path) -> Path:
    """The library that keeps adbd on the loopback interface (loopback.c)."""
    shim = prefix / "loopback.so"
    if not shim.exists() or shim.stat().st_mtime < (RIG_DIR / "loopback.c").stat().st_mtime:
        draft = prefix / f"loopback.{os.getpid()}.so"
        command = [str(compiler), "-shared", "-fPIC", "-O1", str(RIG_DIR / "loopback.c")]
        subprocess.run([*command, "-o", str(draft)], check=True, timeout=300)
        draft.rename(shim)
    return shim


@dataclass
class Daemon:
    """A running adbd."""

    port: int
    process: subprocess.Popen[bytes]
    folder: Path
    remote_dir: str
    """Where the agent's folder is on this device."""
    private: bool
    """Whether /data/local/tmp is the daemon's own; if not, ``remote_dir`` is on the host."""
    log: Path = field(repr=False)

    @property
    def serial(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs beside ``--device SERIAL`` to use this device."""
        return {"NNAPI_PROF_REMOTE_DIR": self.remote_dir}

    def kill(self) -> None:
        """As a pulled cable: the daemon and all its connections are gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_daemon(
    prefix: Path,
    shim: Path,
    *,
    library_dir: Path | None = None,
    phone: Path | None = None,
    properties: Mapping[str, str] | None = None,
    storage: str = "plain",
    root: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Daemon:
    """Starts an adbd and waits until it answers.

    ``library_dir`` holds the libneuralnetworks.so that the device has, ``phone`` the description
    that this emulator follows. ``properties`` change :data:`PROPERTIES`. ``storage`` is the kind of
    /data/local/tmp: ``plain``, ``ro``, or a size such as ``2m``; the last two need a mount
    namespace (RigError without).

    ``root`` is a folder of tests/android/phone.py; it needs a mount namespace, too, has its
    NNAPI library inside, and excludes ``library_dir`` and ``storage``. ``environment`` is what all
    programs on the device get besides.
    """
    if mount_isolation() is None and (storage != "plain" or root is not None):
        expected = f"storage {storage!r}" if root is None else "a phone's root"
        raise RigError(f"{expected} needs a mount namespace: run the tests as root")
    folder = Path(tempfile.mkdtemp(prefix="nnapi-prof-adbd-"))
    (folder / "data").mkdir()
    merged = {**PROPERTIES, **(properties or {})}
    props = "".join(f"{name}={value}\n" for name, value in merged.items())
    (folder / "props").write_text(props)
    port = free_port()
    if root is None:
        env, command = _on_the_host(prefix, shim, folder, library_dir, phone, storage)
    else:
        env, command = _on_a_phone(shim, folder, root, phone)
    log = folder / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            # Commands end when adbd hangs up, also where nohup started the tests.
            ["env", "--default-signal=HUP", *command],
            # Nothing of the developer's: variables of ours would change what the device is.
            env={"ADBD_PORT": str(port), **env, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd="/",
        )
    private = mount_isolation() is not None
    remote_dir = f"{DATA_DIR}/nnapi-prof" if private else str(folder / "data/nnapi-prof")
    daemon = Daemon(port, process, folder, remote_dir, private, log)
    _wait_until_it_answers(daemon)
    return daemon


def _on_the_host(
    prefix: Path,
    shim: Path,
    folder: Path,
    library_dir: Path | None,
    phone: Path | None,
    storage: str,
) -> tuple[dict[str, str], list[str]]:
    """Environment and command of an adbd that sees the host's files."""
    data, root, tools = folder / "data", folder / "root", folder / "bin"
    root.mkdir()
    tools.mkdir()
    shutil.copy(RIG_DIR / "getprop", tools / "getprop")
    env = {
        "PATH": f"{tools}:{_PATH}",
        "HOME": str(data),
        "LANG": "C.UTF-8",
        "NNAPI_PROF_RIG_PROPS": str(folder / "props"),
    }
    if library_dir is not None:
        env["LD_LIBRARY_PATH"] = str(library_dir)
    if phone is not None:
        env["NNAPI_EMULATOR_PHONE"] = str(phone)
    command = _adbd_command(prefix / "root/usr/sbin/adbd", prefix / _LIBRARIES, shim)
    isolation = mount_isolation()
    if isolation is not None:
        enter = ["sh", str(RIG_DIR / "enter.sh"), str(root), str(data), storage]
        command = [*isolation, *enter, *command]
    return env, command


def _on_a_phone(
    shim: Path, folder: Path, root: Path, phone: Path | None
) -> tuple[dict[str, str], list[str]]:
    """Environment and command of an adbd that sees a phone's files; ``folder`` is its /rig/own."""
    (folder / "root").mkdir()
    shutil.copy(shim, folder / "loopback.so")
    own = Path("/rig/own")
    env = {"PATH": _PATH, "HOME": DATA_DIR, "NNAPI_PROF_RIG_PROPS": str(own / "props")}
    if phone is not None:
        shutil.copy(phone, folder / "phone.json")
        env["NNAPI_EMULATOR_PHONE"] = str(own / "phone.json")
    enter = ["sh", str(RIG_DIR.parent / "android/enter.sh"), str(folder / "root"), str(root)]
    isolation = mount_isolation()
    assert isolation is not None
    adbd = _adbd_command(Path("/rig/adbd"), Path("/rig/lib"), own / "loopback.so")
    return env, [*isolation, *enter, str(folder), *adbd]


@cache
def mount_isolation() -> tuple[str, ...] | None:
    """The command that gives a process mounts of its own, None where that is not permitted."""
    own_user = () if os.geteuid() == 0 else ("--map-root-user",)
    command = ("unshare", "--mount", *own_user)
    probe = [*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        allowed = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return None
    return command if allowed else None


def _adbd_command(adbd: Path, libraries: Path, shim: Path) -> list[str]:
    """adbd with the libc it was built for, whatever the host's is."""
    return [
        str(libraries / "ld-linux-x86-64.so.2"),
        *("--library-path", f"{libraries}:{libraries}/android"),
        *("--preload", str(shim)),
        str(adbd),
    ]


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_it_answers(daemon: Daemon) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if daemon.process.poll() is not None:
            break
        device = AdbDeviceTcp("127.0.0.1", daemon.port, default_transport_timeout_s=5.0)
        try:
            device.connect()
            return
        except OSError:
            time.sleep(0.05)
        finally:
            device.close()
    words = daemon.log.read_text(errors="replace")[-2000:]
    daemon.stop()
    raise RigError(f"adbd did not answer on port {daemon.port}:\n{words}")

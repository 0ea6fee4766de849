"""Starts a device to try things on by hand: a real adbd whose NNAPI is a simulated phone's.

    python tests/adbd/phone.py npu-phone        # prints what --device takes; Ctrl-C ends it

``make phone`` and ``make phone PHONE=gpu-phone`` run this.
"""

import contextlib
import sys
from pathlib import Path

import daemon

from nnapi_prof.device.build import build_host
from nnapi_prof.device.find import phone_file
from nnapi_prof.toolchain import cache_dir, find_compiler

REPO = Path(__file__).resolve().parent.parent.parent


def main(name: str) -> None:
    prefix = daemon.set_up(REPO / "build" / "adbd")
    shim = daemon.build_shim(prefix, find_compiler(cache_dir()).path)
    library = build_host().library
    device = daemon.start_daemon(prefix, shim, library_dir=library.parent, phone=phone_file(name))
    try:
        print(f"a real adbd with the NNAPI of {name}: --device {device.serial}", flush=True)
        if not device.private:
            print(f"with NNAPI_PROF_REMOTE_DIR={device.remote_dir} in the environment", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            device.process.wait()
    finally:
        device.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "npu-phone")

"""Has a server of warm.py run a Python program: ``python -IS warm_client.py SOCKET ARGUMENTS...``.

It starts for each program, and imports what it must.
"""

import json
import os
import socket
import struct
import sys

LENGTH = struct.Struct("=I")
STATUS = struct.Struct("=i")


def ask(path: str, arguments: list[str]) -> int:
    """Runs it with our streams, folder and environment; returns its exit code."""
    folder = os.getcwd()  # noqa: PTH109  (pathlib would cost as much as all else)
    request = json.dumps([arguments, folder, dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        socket.send_fds(link, [LENGTH.pack(len(request))], [0, 1, 2])
        link.sendall(request)
        answer = link.recv(STATUS.size, socket.MSG_WAITALL)
    if len(answer) < STATUS.size:
        sys.exit("the server of warm processes is gone: its words stand above")
    (code,) = STATUS.unpack(answer)
    if code < 0:  # a signal ended the program, and ends us
        os.kill(os.getpid(), -code)
    return int(code)


if __name__ == "__main__":
    if "LD_LIBRARY_PATH" in os.environ:  # a linker reads it once, at the start
        words = [word for word in sys.argv[2:] if word != "--without-ours"]
        os.execv(sys.executable, [sys.executable, *words])
    sys.exit(ask(sys.argv[1], sys.argv[2:]))

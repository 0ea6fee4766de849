"""The package onnxruntime-qnn: whether it is here, its version, and the name of its licence."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import platform
import sys

from nnapi_prof.errors import UsageError

INSTALL = "pip install 'nnapi-prof[qnn]'"
NEEDED = ("onnxruntime_qnn", "onnxruntime", "onnx", "onnxscript")
LICENCE = (
    "Qualcomm's compiler and simulator come under the AI Stack License (Qualcomm_LICENSE.pdf in the"
    " package onnxruntime-qnn): use it to develop your own applications and for benchmarking, pass"
    " none of it on by itself"
)


def require() -> None:
    """Raises UsageError, with what to install, where the compiler is not here or cannot be."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise UsageError(
            "Qualcomm's simulator runs on Linux x86-64 only, and this is"
            f" {sys.platform} {platform.machine()}: use such a machine for qnn: devices"
        )
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"devices qnn:CHIP need Qualcomm's compiler, and {', '.join(missing)} is not installed:"
            f" {INSTALL}"
        )


def available() -> bool:
    """Whether :func:`require` would pass."""
    try:
        require()
    except UsageError:
        return False
    return True


@functools.cache
def qairt_version() -> str:
    """The version of Qualcomm's compiler and simulator: estimates of different ones are not the
    same."""
    from onnxruntime_qnn import build_and_package_info

    return str(build_and_package_info.qnn_version)


@functools.cache
def versions() -> dict[str, str]:
    """All that an estimate depends on beside the graph."""
    return {
        "qairt": qairt_version(),
        "onnxruntime-qnn": importlib.metadata.version("onnxruntime-qnn"),
        "onnxruntime": importlib.metadata.version("onnxruntime"),
    }

"""Operators of packages beside torch, which files of models name and do not hold."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import TypeVar

from nnapi_prof.errors import ModelFileError

Loaded = TypeVar("Loaded")

_PACKAGES = {"torchvision": "torchvision", "torchaudio": "torchaudio", "fbgemm": "fbgemm_gpu"}
"""Namespace of operators -> the package that registers them when it is imported."""

_UNKNOWN = (
    re.compile(r"Unknown builtin op: (\w+)::(\w+)"),  # TorchScript's
    re.compile(r"failed to resolve torch\.ops\.(\w+)\.(\w+)"),  # torch.export's
)


def with_extensions(load: Callable[[], Loaded], path: object) -> Loaded:
    """What ``load`` returns, once the package is imported whose operator it did not know.

    Raises ModelFileError, which names the operator, where no package is known to register it or
    that cannot be imported; any other exception of ``load`` as it is.
    """
    try:
        return load()
    except Exception as error:
        namespace, name = _unknown_operator(error)
        if not namespace:
            raise
        if namespace not in _PACKAGES:
            raise ModelFileError(
                f"{path} uses {namespace}::{name}, an operator that this torch does not have: "
                "save the model without it"
            ) from error
        package = _PACKAGES[namespace]
        try:
            importlib.import_module(package)
        except Exception as failed:
            raise ModelFileError(
                f"{path} uses {namespace}::{name}, an operator of the package {package}, which "
                f"cannot be imported ({str(failed).splitlines()[0]}): install the {package} that "
                "belongs to this torch"
            ) from failed
    return load()


def _unknown_operator(error: Exception) -> tuple[str, str]:
    """Namespace and name of the operator that an error is about, empty where it is not."""
    for pattern in _UNKNOWN:
        found = pattern.search(str(error))
        if found:
            return found[1], found[2]
    return "", ""

"""Hide PyTorch's own warnings and log lines from the user."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator

import torch
from torch.jit._fuser import optimized_execution


@contextlib.contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppresses warnings and log lines of PyTorch; exceptions pass through."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def logged_errors(name: str) -> Iterator[list[BaseException]]:
    """Yields a list that collects the exceptions logged by ``name``, for functions that log the
    cause and raise a less specific error. Nothing is shown, also within :func:`quiet_torch`."""
    told: list[BaseException] = []

    class ExceptionCollector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None:
                told.append(record.exc_info[1])

    logger = logging.getLogger(name)
    disabled, handlers, propagates = (
        logging.root.manager.disable,
        logger.handlers,
        logger.propagate,
    )
    logging.disable(logging.NOTSET)
    logger.handlers, logger.propagate = [ExceptionCollector()], False
    try:
        yield told
    finally:
        logger.handlers, logger.propagate = handlers, propagates
        logging.disable(disabled)


@contextlib.contextmanager
def run_once() -> Iterator[None]:
    """Runs models quietly, without gradients, and without TorchScript's optimiser.

    The optimiser rewrites a model during its first runs, which takes longer than the few runs here.
    """
    with quiet_torch(), torch.no_grad(), optimized_execution(False):
        yield


def essential_line(error: BaseException) -> str:
    """Returns the line of a PyTorch error that says what is wrong, without its class name.

    TorchScript's interpreter puts a traceback around the message of the operation that failed.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        told = re.match(r"(?:[\w.]*Error|[\w.]*Exception): (.+)", line)
        if told:
            return told.group(1)
    skipped = ("The following operation failed", "Traceback of TorchScript", "While executing")
    plain = [line for line in lines if not line.startswith(skipped)]
    return plain[0] if plain else type(error).__name__


def source_line(error: BaseException) -> str | None:
    """Returns ``FILE:LINE`` of the innermost TorchScript frame that an error names, else None."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else None

"""From a model's file to the program that everything else works on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend import load
from nnapi_prof.frontend.inputs import parse_input_specs
from nnapi_prof.graph.program import Program

LOGGER = logging.getLogger(__name__)


def read_model(path: Path, inputs: Sequence[str], keep: bool = False) -> Program:
    """Loads a model; ``keep`` is that of frontend.load.

    Raises what :func:`nnapi_prof.frontend.load` raises, and FrontendError where nothing is left to
    place on a device.
    """
    program = load(path, parse_input_specs(inputs), keep)
    LOGGER.debug("read %s: %d units", path, len(program.units.units))
    if not program.units.units:
        raise FrontendError(
            f"{path} computes nothing: its outputs are constants or its inputs as they are; give a"
            " model with operations to measure and to place"
        )
    return program

"""Fixtures of simulated phones and their answers."""

import pytest


@pytest.fixture(scope="module")
def answers(request, emulator_library, tmp_path_factory):
    """Returns the answers to a module's jobs, by name."""
    return request.module.jobs.answers(emulator_library, tmp_path_factory.mktemp("phones"))

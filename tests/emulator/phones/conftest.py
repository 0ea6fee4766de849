"""What simulated phones answer."""

import pytest


@pytest.fixture(scope="module")
def answers(request, emulator_library, tmp_path_factory):
    """What the jobs of a module answered, by name."""
    return request.module.jobs.answers(emulator_library, tmp_path_factory.mktemp("phones"))

"""Folders that other users may enter, and nothing of the developer's."""

import shutil
import tempfile
from pathlib import Path

import pytest

from nnapi_prof.doctor import Host
from tests.device.asking_phone import asking_phone as asking_phone


@pytest.fixture
def open_folder():
    """A folder like tmp_path, but on a way that every user may go."""
    folder = Path(tempfile.mkdtemp(prefix="nnapi-prof-doctor-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def host(tmp_path):
    """A host without USB; its adb server is the one that the test's environment names."""
    (tmp_path / "sys").mkdir()
    return Host(tmp_path / "sys", tmp_path / "dev")

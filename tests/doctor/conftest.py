"""Folders that other users may enter, and nothing of the developer's."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest

from nnapi_prof.doctor import Host
from tests.device.asking_phone import AskingPhone


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


@pytest.fixture
def asking_phone():
    """Starts phones that want a known key."""
    with contextlib.ExitStack() as phones:

        def make(*accepts: bytes, silent: bool = False) -> AskingPhone:
            phone = AskingPhone(accepts, silent)
            phones.callback(phone.close)
            return phone

        yield make

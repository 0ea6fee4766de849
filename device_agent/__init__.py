"""The device agent's C sources, found from Python: ``SOURCE_DIR`` holds ``CMakeLists.txt``."""

from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parent

"""What a machine may lack: tests that need it are skipped, and the run ends with a table."""

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skips the test or module; ``reason`` says what is missing and how to get it.

    NNAPI_PROF_REQUIRE_ALL=1 fails there: CI has every part.
    """
    if os.environ.get("NNAPI_PROF_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason} (NNAPI_PROF_REQUIRE_ALL=1)", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def need(module: str, extra: str) -> ModuleType:
    """Imports a module of an optional dependency, or skips as :func:`missing` does."""
    try:
        return importlib.import_module(module)
    except ImportError:
        missing(f"{module} is not installed: pip install -e '.[{extra}]'")


def script(path: Path) -> ModuleType:
    """The module of a script that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def again_but(values: Iterable[Any], *kept: Any, why: str) -> list[Any]:
    """Marks parameters ``again``, which ``make test-all`` runs, but for those that are kept."""
    return _marked_but(values, kept, pytest.mark.again(why))


def slow_but(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Marks parameters ``slow``, which ``make check`` leaves out, but for those that are kept."""
    return _marked_but(values, kept, pytest.mark.slow)


def _marked_but(
    values: Iterable[Any], kept: tuple[Any, ...], mark: pytest.MarkDecorator
) -> list[Any]:
    return [value if value in kept else pytest.param(value, marks=mark) for value in values]

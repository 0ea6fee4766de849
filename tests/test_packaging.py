"""The wheel's list of packages against the disk, and what the top-level names load."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("partition", "reports", "device_agent")


def configuration() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_on_disk_is_in_the_list():
    found = {"nnapi_prof." + name for name in MAPPED}
    for init in (ROOT / "nnapi_prof").rglob("__init__.py"):
        relative = init.parent.relative_to(ROOT)
        if relative.parts[1:2] and relative.parts[1] in MAPPED:
            continue  # reached through a link; the mapping names it
        found.add(".".join(relative.parts))
    assert found == set(configuration()["tool"]["setuptools"]["packages"])


def test_links_point_to_the_top_level_folders():
    for name in MAPPED:
        link = ROOT / "nnapi_prof" / name
        assert link.is_symlink()
        assert link.readlink() == Path("..") / name


def test_every_data_pattern_matches_a_file():
    setuptools = configuration()["tool"]["setuptools"]
    for package, patterns in setuptools["package-data"].items():
        folder = ROOT / setuptools["package-dir"].get(package, package.replace(".", "/"))
        for pattern in patterns:
            assert list(folder.glob(pattern)), f"{package}: {pattern} matches nothing"


def test_help_loads_neither_torch_nor_pandas():
    code = (
        "import sys; from nnapi_prof.cli import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "heavy = {'torch', 'pandas', 'numpy', 'matplotlib', 'adb_shell'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_partitioner_loads_neither_torch_nor_adb():
    code = (
        "import sys, nnapi_prof.partition\n"
        "heavy = {'torch', 'adb_shell', 'usb1'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

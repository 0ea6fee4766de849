"""XNNPACK's sources and its build: what is pinned and refused, and where the build is found."""

import hashlib
import importlib.util
import re
import subprocess
import sys
import tarfile

import pytest

from nnapi_prof import toolchain
from nnapi_prof.device import build, find, xnnpack
from nnapi_prof.errors import BuildError

TINY_CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES C)
foreach(name XNNPACK microkernels-prod pthreadpool cpuinfo)
  add_library(${name} STATIC ${NP_XNNPACK_SOURCES}/tiny.c)
  install(TARGETS ${name} DESTINATION lib)
endforeach()
install(FILES ${NP_XNNPACK_SOURCES}/xnnpack.h DESTINATION include)
"""
TINY_FETCH = """
import subprocess
import sys
from pathlib import Path
folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
(folder / "tiny.c").write_text("int tiny(void) { return 1; }\\n")
(folder / "xnnpack.h").write_text("")
"""


@pytest.fixture(scope="module")
def fetching():
    """The script fetch.py as a module."""
    name, path = "nnapi_prof_fetch", xnnpack.RECIPE_DIR / "fetch.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def archives(fetching, tmp_path, monkeypatch):
    """A folder with one archive, pinned in place of the real ones: with a folder of its own inside
    or without."""
    folder = tmp_path / "archives"
    folder.mkdir()

    def make(root="tree-1.0/", text="first"):
        source = tmp_path / "text"
        source.write_text(text)
        path = folder / "tree_1.0.orig.tar.xz"
        with tarfile.open(path, "w:xz") as tar:
            tar.add(source, f"{root}README")
            tar.add(source, f"{root}sub/file")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        archive = fetching.SourceArchive("tree", "trixie", "tree", "1.0-3", digest)
        monkeypatch.setattr(fetching, "pinned", lambda: [archive])
        return folder

    return make


def test_what_is_pinned(fetching):
    listed = fetching.pinned()
    assert [a.folder for a in listed] == ["xnnpack", "pthreadpool", "fxdiv", "cpuinfo"]
    for archive in listed:
        assert re.fullmatch(r"[0-9a-f]{64}", archive.sha256)
        name = rf"{archive.package}_0\.0~git[^-]*\.orig\.tar\.xz"
        assert re.fullmatch(name, archive.file_name)
    for path in xnnpack.RECIPE_DIR.iterdir():
        if path.is_file():
            assert "://" not in path.read_text(), "it names a host"


@pytest.mark.parametrize("root", ["tree-1.0/", ""])
def test_archives_of_a_local_folder_are_unpacked_once(fetching, archives, tmp_path, root):
    sources = tmp_path / "sources"
    fetching.fetch(sources, archives(root))
    readme = sources / "tree" / "README"
    assert readme.read_text() == "first"
    assert (sources / "tree" / "sub" / "file").exists()
    readme.write_text("touched")
    fetching.fetch(sources, tmp_path / "no such folder")
    assert readme.read_text() == "touched"  # nothing was missing
    fetching.fetch(sources, archives(root, "second"))
    assert readme.read_text() == "second"  # another archive is pinned
    assert [p.name for p in sources.iterdir()] == ["tree"]


def test_another_content_than_the_pinned_one_is_refused(fetching, archives, tmp_path):
    folder = archives()
    with (folder / "tree_1.0.orig.tar.xz").open("ab") as file:
        file.write(b"x")
    sources, words = tmp_path / "sources", r"has SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}, wh"
    with pytest.raises(fetching.FetchError, match=words):
        fetching.fetch(sources, folder)
    assert list(sources.iterdir()) == []


def test_what_is_missing_is_named(fetching, archives, tmp_path, monkeypatch):
    archives()
    with pytest.raises(fetching.FetchError, match=r"empty has no tree_1.0.orig.tar.xz"):
        fetching.fetch(tmp_path / "sources", tmp_path / "empty")
    monkeypatch.setenv("PATH", str(tmp_path))  # without apt
    with pytest.raises(fetching.FetchError, match="xz in NNAPI_PROF_XNNPACK_ARCHIVES"):
        fetching.fetch(tmp_path / "sources")


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe that builds in a second, in place of XNNPACK's."""
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(TINY_CMAKE)
    (folder / "fetch.py").write_text(TINY_FETCH)
    (folder / "archives.txt").write_text("")
    monkeypatch.setattr(xnnpack, "RECIPE_DIR", folder)
    monkeypatch.delenv("NNAPI_PROF_XNNPACK", raising=False)
    return folder


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def leftovers(prefix, suffix):
    return [path.name for path in prefix.parent.iterdir() if path.suffix == suffix]


def test_built_once_found_after_and_again_when_the_recipe_changes(recipe, cache):
    heard = []
    assert xnnpack.built_prefix(cache) is None
    prefix = xnnpack.build_xnnpack(cache, heard.append)
    assert xnnpack.built_prefix(cache) == prefix
    assert xnnpack.build_xnnpack(cache, heard.append) == prefix
    assert len(heard) == 1 and heard[0].startswith("building XNNPACK for this host with ")
    assert leftovers(prefix, ".build") == []
    (recipe / "archives.txt").write_text("# another\n")
    assert xnnpack.built_prefix(cache) is None
    assert xnnpack.build_xnnpack(cache) != prefix


def test_first_use_goes_on_without_and_says_so_once(recipe, cache, monkeypatch):
    heard = []
    (recipe / "fetch.py").write_text("import sys\nsys.exit('no network\\nat all')\n")
    for _ in range(2):
        assert xnnpack.first_use(cache, heard.append) is None
    assert len(heard) == 2, heard
    assert heard[0].startswith("building XNNPACK") and "1 to 3 minutes" in heard[0]
    assert heard[1].startswith("going on without XNNPACK") and "no network (`python" in heard[1]
    monkeypatch.setattr(xnnpack, "RETRY_S", 0.0)  # a day later
    (recipe / "fetch.py").write_text(TINY_FETCH)
    prefix = xnnpack.first_use(cache, heard.append)
    assert prefix is not None and prefix == xnnpack.first_use(cache, heard.append)
    assert len(heard) == 3 and leftovers(prefix, ".failed") == []


def test_simulated_phones_do_not_wait_for_xnnpack(monkeypatch):
    asked = []

    def build_host(*, progress=None, fast=False):
        asked.append(fast)
        raise BuildError("no compiler")

    monkeypatch.setattr(find, "build_host", build_host)
    for opens in (find.open_local, lambda: find.open_simulated("npu-phone")):
        with pytest.raises(BuildError):
            opens()
    assert asked == [True, False]


FIND_AGENTS = """
import subprocess
import sys
from pathlib import Path
from nnapi_prof.device import build, xnnpack
xnnpack.RECIPE_DIR = Path(sys.argv[1])
for line in sys.stdin:
    print(build.host_prefix(Path(sys.argv[2]), fast=line == "fast\\n"), flush=True)
"""


def test_a_process_keeps_its_agent_while_another_builds_xnnpack(recipe, cache):
    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", FIND_AGENTS, str(recipe), str(cache)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, text=True, **pipes)

    def ask(process: subprocess.Popen[str], how: str) -> str:
        process.stdin.write(f"{how}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    with start() as running:
        assert ask(running, "as it is") == "None"
        prefix = str(xnnpack.build_xnnpack(cache))
        assert ask(running, "as it is") == "None"
        with start() as later:
            assert ask(later, "as it is") == prefix
            later.stdin.close()
        assert ask(running, "fast") == prefix
        assert ask(running, "as it is") == prefix
        running.stdin.close()


def test_failures_say_what_failed(recipe, cache):
    (recipe / "fetch.py").write_text("import sys; sys.exit('fetch.py: no network')")
    with pytest.raises(BuildError, match=r"XNNPACK are not available: fetch.py: no netw"):
        xnnpack.build_xnnpack(cache)
    (recipe / "fetch.py").write_text(TINY_FETCH.replace("return 1", "return nothing"))
    words = r"(?s)XNNPACK could not be compiled .*kept for the next try.:\n.*nothing"
    with pytest.raises(BuildError, match=words):
        xnnpack.build_xnnpack(cache)
    assert xnnpack.built_prefix(cache) is None


MANY_CMAKE = TINY_CMAKE.replace(
    "foreach(name", "file(GLOB parts ${NP_XNNPACK_SOURCES}/part*.c)\nforeach(name", 1
).replace("/tiny.c)", "/tiny.c ${parts})")
MANY_FETCH = TINY_FETCH.replace(
    "folder.mkdir(exist_ok=True)",
    """
if folder.exists():
    sys.exit()
folder.mkdir()
for i in range(5):
    (folder / f"part{i}.c").write_text(f"int part{i}(void) {{ return {i}; }}\\n")
""",
)


def test_a_build_that_is_stopped_goes_on_where_it_stopped(recipe, cache, monkeypatch):
    (recipe / "CMakeLists.txt").write_text(MANY_CMAKE)
    (recipe / "fetch.py").write_text(MANY_FETCH)
    monkeypatch.setenv("CMAKE_BUILD_PARALLEL_LEVEL", "1")
    text, steps = [], []

    def stop_at_12(done, of):
        steps.append((done, of))
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), toolchain.build_steps(stop_at_12):
        xnnpack.build_xnnpack(cache, text.append)
    assert xnnpack.built_prefix(cache) is None
    total, first = steps[0][1], len(steps)
    steps.clear()
    with toolchain.build_steps(lambda done, of: steps.append((done, of))):
        prefix = xnnpack.build_xnnpack(cache, text.append)
    assert xnnpack.built_prefix(cache) == prefix
    assert total > 24 and first == 12
    assert steps[-1][1] <= total - 11  # what was done when it stopped may be lost, no more
    assert ["from where it stopped" in line for line in text] == [False, True]
    assert leftovers(prefix, ".build") == []


def test_what_another_checkout_began_is_begun_anew(recipe, cache, monkeypatch):
    (recipe / "fetch.py").write_text(TINY_FETCH.replace("return 1", "return nothing"))
    with pytest.raises(BuildError, match="what was compiled is kept"):
        xnnpack.build_xnnpack(cache)
    moved = recipe.rename(recipe.with_name("moved"))
    monkeypatch.setattr(xnnpack, "RECIPE_DIR", moved)
    (moved / "fetch.py").write_text(TINY_FETCH)
    assert xnnpack.built_prefix(cache) is None
    assert xnnpack.build_xnnpack(cache) == xnnpack.built_prefix(cache)


def test_the_environment_names_a_prefix_or_none(recipe, cache, tmp_path, monkeypatch):
    """The agent's build depends on it."""
    prefix, compiler = xnnpack.build_xnnpack(cache), toolchain.find_compiler(cache)
    keys = {build._key(compiler, None), build._key(compiler, prefix)}
    (prefix / "lib" / "libcpuinfo.a").write_bytes(b"another build")
    assert len({*keys, build._key(compiler, prefix)}) == 3
    monkeypatch.setenv("NNAPI_PROF_XNNPACK", str(prefix))
    assert xnnpack.built_prefix(tmp_path / "other") == prefix
    monkeypatch.setenv("NNAPI_PROF_XNNPACK", "")
    heard = []
    assert xnnpack.built_prefix(cache) is None and xnnpack.first_use(cache, heard.append) is None
    assert heard == []
    monkeypatch.setenv("NNAPI_PROF_XNNPACK", str(tmp_path / "nowhere"))
    with pytest.raises(BuildError, match="nowhere, where XNNPACK is not built"):
        xnnpack.built_prefix(cache)

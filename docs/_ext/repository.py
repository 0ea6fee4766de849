"""Files of the repository in the documentation: ``{src}`` names one, and READMEs are included.

A file that is named must be there, or the build warns; no address of a repository is known here, so
that it is a name and no link. Links of an included file lead to the page that includes their
target, else they become such names.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "device_agent/PROTOCOL.md": "reference/formats.md",
    "device_agent/emulator/PHONES.md": "emulator.md",
    "device_agent/emulator/README.md": "emulator.md",
    "device_agent/runtime/README.md": "c-side.md",
    "device_agent/android/README.md": "c-side.md",
    "device_agent/library/README.md": "embedding.md",
    "device_agent/library/FORMAT.md": "reference/formats.md",
}
"""File of the repository -> the page that includes it."""

LINK = re.compile(r"\[(?P<text>[^\]\n]*)\]\((?P<target>(?!https?:)[^)#\s]+)(#[^)\s]*)?\)")

logger = logging.getLogger(__name__)


class Source(SphinxRole):
    """``{src}`device_agent/PROTOCOL.md` ``: a file or folder, by its path from the root."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if not (ROOT / self.text).exists():
            where = self.get_location()
            logger.warning("no such file in the repository: %s", self.text, location=where)
        return [nodes.literal("", self.text, classes=["file"])], []


def relink(text: str, source: str, page: str) -> str:
    """The Markdown of the file ``source`` (a path from the root), its links made right for
    ``page`` (a path from docs/)."""

    def replacement(found: re.Match[str]) -> str:
        target = (ROOT / source).parent.joinpath(found["target"]).resolve()
        name = target.relative_to(ROOT).as_posix()
        if name in PAGES:
            up = "../" * page.count("/")
            return f"[{found['text']}]({up}{PAGES[name]})"
        if not target.exists():
            logger.warning("%s links to %s, which is not there", source, found["target"])
        shown = found["text"].strip("`")
        return f"`{name}`" if name.endswith(shown.rstrip("/")) else f"{found['text']} (`{name}`)"

    return LINK.sub(replacement, text)


def _on_include(app: Sphinx, path: Path, _parent: str, content: list[str]) -> None:
    source = (Path(app.srcdir) / path).resolve().relative_to(ROOT).as_posix()
    if source in PAGES:
        content[0] = relink(content[0], source, PAGES[source])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_role("src", Source())
    app.connect("include-read", _on_include)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

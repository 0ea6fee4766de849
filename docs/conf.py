"""Sphinx: Markdown in, HTML out, everything from this repository and nothing from the network."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from nnapi_prof import __version__  # noqa: E402  (the line above makes it importable)

project = "nnapi-prof"
author = "the nnapi-prof authors"
copyright = "the nnapi-prof authors, Apache License 2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "commands", "docstrings", "repository", "tables"]
exclude_patterns = ["_ext", "figures/*.py"]
source_suffix = {".md": "markdown"}
root_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist", "smartquotes"]
myst_heading_anchors = 4
smartquotes = False

html_theme = "furo"
html_title = f"nnapi-prof {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_baseurl = ""

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}

# Names in signatures and docstrings that have no page here, each with the reason.  Nothing else
# may be left unresolved.
_OTHERS = "a name of another library, whose documentation would have to be fetched"
_INNER = "a name of ours that is no part of the public interface: the docstring is for developers"
NOT_ON_THESE_PAGES = {
    r"(torch|pandas|pd|np|numpy|os|pathlib|collections|typing)\..*": _OTHERS,
    r"(Tensor|ExportedProgram|Path|DataFrame|Callable|Sequence|Mapping|Iterable|Any)": _OTHERS,
    r"(AUTO|AgentClient|CostStore|CostTable|Input|Listener|Precision|Program)": _INNER,
    r"(Conditions|RegionProbe|Source)": _INNER,
    r"(RunReport|Bundle|ReportData|Comparison)(\..*)?": _INNER,
    r"nnapi_prof\.(advice|bundle|convert|costs|device|frontend|graph|passes)\..*": _INNER,
    r"nnapi_prof\.(api|bisection|execution|partition|qnn|reports)\..*": _INNER,
}
nitpicky = True
nitpick_ignore_regex = [("py:.*", pattern) for pattern in NOT_ON_THESE_PAGES]

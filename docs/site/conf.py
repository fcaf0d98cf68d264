"""How Sphinx builds the website: `make docs`. Nothing is read from the network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import autogemm

project = "autogemm"
author = "The autogemm authors"
copyright = "2026, The autogemm authors"
version = release = autogemm.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
# The anchors that a forge gives headings, and the links of the pages, lead to them.
myst_heading_anchors = 4
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
# It need not be installed to build the site.
autodoc_mock_imports = ["torch"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = "autogemm"
html_copy_source = False
html_show_sphinx = False
html_static_path: list[str] = []
pygments_style = "friendly"
pygments_dark_style = "github-dark"
# Blocks that are not marked as a language are commands and what they print.
highlight_language = "none"

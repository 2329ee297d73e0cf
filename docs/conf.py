"""How the docs site is built: ``make docs``."""

import re
from typing import Any

from oddnode import __version__

project = "oddnode"
author = copyright = "The oddnode developers"
release = version = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc", "myst_parser"]
exclude_patterns = ["build"]
html_theme = "furo"
html_title = f"oddnode {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # numpydoc shows them from the docstrings
default_role = "py:obj"
numpydoc_show_class_members = False


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator for its own machinery."""
    return True if re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", _skip)

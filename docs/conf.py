"""The documentation site: `make docs` builds it into build/docs, and warnings are errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import beamwood

project = "beamwood"
author = "the authors of beamwood"
release = version = beamwood.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated"]

html_theme = "furo"
html_title = f"beamwood {release}"
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1a7f64", "color-brand-content": "#1a7f64"},
    "dark_css_variables": {"color-brand-primary": "#3fb98f", "color-brand-content": "#3fb98f"},
}

myst_heading_anchors = 3
# Options such as --html keep their hyphens.
smartquotes = False

autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

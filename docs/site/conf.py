"""Sphinx's settings of the documentation site; `nox -s docs` builds it."""

project = "etprof"
html_title = "etprof"
extensions = ["myst_parser"]
# The names that GitHub gives to headings, so that a link is right in both places.
myst_heading_anchors = 4
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
# A picture is shown at the width that the page has.
html_theme_options = {"navigation_with_keys": True}
nitpicky = True

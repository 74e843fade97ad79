"""Settings of the site. `make site` gathers its pages into out/site-source and builds them from there."""

from headcount._version import __version__

project = "headcount"
version = release = __version__
copyright = "the headcount developers, Apache-2.0"
extensions = ["myst_parser"]
exclude_patterns = ["reference/examples/*"]
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
suppress_warnings = ["myst.header", "toc.not_included"]  # a page that no list names is still found by search
html_theme = "furo"
html_title = "headcount"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_extra_path = ["extra"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
smartquotes = False

"""Settings of Sphinx for the documentation site: `make docs`."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]  # for docs.generate; the packages are installed

project = "Skyward for Jupyter"
author = "The Skyward for Jupyter authors"
copyright = f"{author}. MIT licence"  # Sphinx's name
version = release = version_of("skyward-jupyter")
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "docs.generate"]
exclude_patterns = ["generate", "**/conftest.py"]
nitpicky = True

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks are shown with the outputs that nbval has compared
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_custom_sections = ["Source"]
napoleon_attr_annotations = True
default_role = "code"
smartquotes = False  # it makes a dash of the hyphens of an option
add_module_names = False
maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"Skyward for Jupyter {version}"
html_static_path = ["_static"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []

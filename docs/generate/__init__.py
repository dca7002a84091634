"""Sphinx extension that writes the reference from the code: names, options, commands, configuration keys and errors.

A page says where something generated goes, with a fence of the language `{generated}`:

    ```{generated} cell-options
    ```

So no page repeats a table of the code, and what the code gains is in the site with the next build.
"""

from typing import TYPE_CHECKING, Any

from pygments.lexers import TextLexer

from docs.generate.docstrings import connect_docstrings
from docs.generate.domain import SkywardDomain
from docs.generate.fences import fill
from docs.generate.links import connect_links
from docs.generate.references import connect_references

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["setup"]


def setup(app: "Sphinx") -> dict[str, Any]:
    """Add the domain and the handlers to Sphinx."""
    app.add_domain(SkywardDomain)
    app.connect("source-read", fill)
    app.add_lexer("csv", TextLexer)
    connect_docstrings(app)
    connect_references(app)
    connect_links(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

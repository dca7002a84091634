"""The code blocks of the pages and of the README, each with what a test does with it.

A block runs as it stands, unless a comment on the line above says otherwise:

    <!-- test: on local nodes -->           its machines are validated, and local nodes take their place
    <!-- test: names only: REASON -->       it is compiled, and its names and arguments are validated
    <!-- test: in tests/local/test_x.py --> that test runs it
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "Block", "blocks", "pages"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(
    r"^(?:<!-- test: (?P<mark>[^\n]+?) -->\n)?(?P<ticks>```+)(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=ticks)$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One block.

    Attributes:
        page: path of its page, from the root of the repository.
        line: line of its first line of code.
        language: language of its fence; empty if it has none.
        mark: what the comment above says; empty if it runs as it stands.
    """

    page: str
    line: int
    language: str
    code: str
    mark: str = ""

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


@cache
def pages() -> tuple[Path, ...]:
    """Return the Markdown pages, with the README and the page for contributors."""
    own = [path for path in (ROOT / "docs").rglob("*.md") if "notebooks" not in path.parts]
    return (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(own))


@cache
def blocks(*languages: str) -> tuple[Block, ...]:
    """Return the blocks of all pages, or those of some languages, without directives of the site."""
    found = [block for page in pages() for block in _blocks(page)]
    return tuple(block for block in found if not languages or block.language in languages)


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _FENCE.finditer(text):
        if not match["language"].startswith("{"):
            line = text.count("\n", 0, match.start("code")) + 1
            name = page.relative_to(ROOT).as_posix()
            yield Block(name, line, match["language"], match["code"], match["mark"] or "")

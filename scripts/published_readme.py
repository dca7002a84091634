"""Makes the description of the published package from README.md, as a metadata hook of hatchling."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_ONLY_IN_A_CLONE = ("Try it", "Commands")
"""Sections about the commands of the Makefile, which a package does not have."""

_SECTION = re.compile(r"^## (.+)\n(?:(?!## ).*\n?)*", re.MULTILINE)
_RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)[^)]+\)")


def published(readme: str) -> str:
    """Return the README without what works only in a clone: those sections, and the targets of relative links."""
    kept = _SECTION.sub(lambda section: "" if section[1] in _ONLY_IN_A_CLONE else section[0], readme)
    return _RELATIVE_LINK.sub(r"\1", kept)


class PublishedReadme(MetadataHookInterface):
    """The hook."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme` of the project."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": published(text)}

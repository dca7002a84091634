"""The provider of docs/extend/providers.md."""

import re
import sys
from pathlib import Path
from types import ModuleType

from skyward.providers import ProviderConfig

__all__ = ["documented_code", "documented_provider"]

_PAGE = Path(__file__).parents[1] / "docs" / "extend" / "providers.md"


def documented_provider(folder: str) -> ProviderConfig:
    """Return the settings of the complete provider on the page, whose cloud is `folder`."""
    name = "documented_folder_provider"
    if name not in sys.modules:
        module = ModuleType(name)
        sys.modules[name] = module  # pickled by name, in the journal
        exec(compile(documented_code(), str(_PAGE), "exec"), vars(module))
    settings: ProviderConfig = sys.modules[name].Folder(folder)
    return settings


def documented_code() -> str:
    """Return the source of the complete provider on the page."""
    code: str
    (code,) = re.findall(r"```python\n(import json.*?)```", _PAGE.read_text(), re.S)
    return code

"""Requirements that name files, which only this machine is known to have."""

import re
from collections.abc import Mapping

from skyward.errors import SpecError
from skyward.specs.image import Image

__all__ = ["check_remote_requirements", "own_references"]

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_NAMED = re.compile(r"[\w.-]+\s*(?:\[[^]]*\])?\s*@\s*(.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(.*)")
_OPTION = re.compile(r"(?:-[rcf]|--(?:requirement|constraint|find-links))(?:\s+|=)(.*)")
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def own_references(image: Image) -> Mapping[str, str]:
    """Return the variables of `image`; those of `shell_vars`, whose values are unknown here, stand for themselves."""
    return {**{name: f"${{{name}}}" for name in image.shell_vars}, **image.env}


def check_remote_requirements(image: Image) -> None:
    """Check that `image.pip` names no file or folder of this machine, since other machines do not have it.

    What begins with a variable of `shell_vars` is left to the node that computes its value.

    Raises:
        SpecError: it names one.
    """
    variables = own_references(image)
    for requirement in image.pip:
        if _is_path(_REFERENCE.sub(lambda found: variables.get(found[1], found[0]), requirement).strip()):
            raise SpecError(
                f"Image.pip names the local path {requirement!r}, which the nodes do not have: send its package with "
                "Image(includes=[...]), or give the name of a package or an https address. For wheels in a folder of "
                "the nodes, give the name and Image(env={'UV_FIND_LINKS': '/folder'})."
            )


def _is_path(requirement: str) -> bool:
    """Return whether an installer takes a requirement for a file or folder, or an option that names one."""
    if option := _OPTION.fullmatch(requirement):
        return _is_local(option[1])
    if editable := _EDITABLE.fullmatch(requirement):
        requirement = editable[1]
        if not _SCHEME.match(requirement) and not _NAMED.fullmatch(requirement):
            return _is_local(requirement)
    if not _SCHEME.match(requirement) and (named := _NAMED.fullmatch(requirement)):
        return _is_local(named[1])
    first = re.split(r"[\s;\[]", requirement, maxsplit=1)[0]
    looks_like_path = first.startswith((".", "~")) or "/" in first or first.lower().endswith(_ARCHIVES)
    return (looks_like_path or first.lower().startswith("file:")) and _is_local(first)


def _is_local(address: str) -> bool:
    """Return whether an address is a path, or a URL of one; False if it begins with a variable, which is unknown."""
    scheme = _SCHEME.match(address)
    return scheme[1].lower() == "file" if scheme else not address.startswith("$")

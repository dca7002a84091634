"""The form of a new pool: the options of `%sky up`."""

import contextlib

from skyward.errors import SpecError
from skyward.frontends.commands import POOL_OPTIONS
from skyward.frontends.configuration import load, provider_names
from skyward_kernel.panel.protocol import FormField

__all__ = ["form_fields"]


def form_fields() -> tuple[FormField, ...]:
    """Return the fields of the form of a new pool."""
    configured: tuple[str, ...] = ()
    with contextlib.suppress(SpecError):  # an invalid file is reported where it is used
        configured = load().providers
    choices = {"--provider": tuple(dict.fromkeys((*configured, *provider_names())))}
    return tuple(
        FormField(each.name, each.metavar, each.help, choices.get(each.name, each.choices), each.takes)
        for each in POOL_OPTIONS
    )

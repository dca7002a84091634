"""The traits of the magics, set by `c.SkyMagics.NAME = value` and `%config SkyMagics.NAME = value`."""

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics
from traitlets import Bool, Float, Int, TraitError, Unicode, Union, observe, validate

from skyward.errors import SkywardError
from skyward.frontends.commands import PLACES, place
from skyward.frontends.configuration import load
from skyward_jupyter.options.settings import NAMES, CellSettings, SettingWithSource, settings_from

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["ConfiguredMagics"]

_DEFAULT = CellSettings()


class ConfiguredMagics(Magics):
    """Magics with settings. Traits take precedence over configuration files."""

    pool = Unicode(_DEFAULT.pool, help="Pool of cells that do not name one.").tag(config=True)
    on = Union(
        [Unicode(), Int()],
        default_value=_DEFAULT.on,
        help="Default nodes of cells: one, all, head, ranks, or a group of the pool.",
    ).tag(config=True)
    by_node = Bool(_DEFAULT.by_node, help="Show one output section per node for cells on several nodes.").tag(
        config=True
    )
    quiet = Bool(_DEFAULT.quiet, help="Show no progress, no manifest and no footer.").tag(config=True)
    retries = Int(_DEFAULT.retries, min=0, help="How often a cell that raises is retried.").tag(config=True)
    timeout = Float(_DEFAULT.timeout, allow_none=True, help="Seconds after which a cell is stopped.").tag(config=True)
    footer = Bool(_DEFAULT.footer, help="Show where a cell ran, its duration and its cost below it.").tag(config=True)
    capture_limit = Int(_DEFAULT.capture_limit, help="Maximum size of the variables of a cell, bytes.").tag(config=True)
    show_progress = Bool(_DEFAULT.show_progress, help="Show the progress of opening pools and of groups of tasks.").tag(
        config=True
    )
    progress_after = Float(_DEFAULT.progress_after, help="Seconds before a progress line is shown.").tag(config=True)
    interrupt_grace = Float(
        _DEFAULT.interrupt_grace,
        help="Seconds that a stopped cell has to end and to return its variables.",
    ).tag(config=True)

    def __init__(self, shell: "InteractiveShell") -> None:
        self._set_here: set[str] = set()
        self._pool_name = _DEFAULT.pool
        super().__init__(shell)

    @validate("on")
    def _check_on(self, proposal: Any) -> Any:
        try:
            place(str(proposal["value"]))
        except ValueError:
            raise TraitError(f"on takes {PLACES}, but got {proposal['value']!r}.") from None
        return proposal["value"]

    @observe(*NAMES)
    def _was_set(self, change: Any) -> None:
        self._set_here.add(change["name"])

    @property
    def sourced(self) -> dict[str, SettingWithSource]:
        """Each setting with its source.

        Raises:
            SpecError: a configuration file is invalid.
        """
        configured = self.config.get("SkyMagics", {})  # setting a trait to its old value notifies no observer
        given = {name for name in NAMES if name in self._set_here or name in configured}
        values = {name: getattr(self, name) for name in NAMES}
        return settings_from({**values, "on": place(str(self.on))}, given, load())

    @property
    def settings(self) -> CellSettings:
        """The settings.

        Raises:
            SpecError: a configuration file is invalid.
        """
        settings = CellSettings(**{name: each.value for name, each in self.sourced.items()})
        self._pool_name = settings.pool
        return settings

    @property
    def display_settings(self) -> CellSettings:
        """Settings for display only: a configuration file that has become invalid must not keep code from running."""
        try:
            return self.settings
        except SkywardError:
            return CellSettings(**{name: getattr(self, name) for name in NAMES})

    @property
    def default_pool(self) -> str:
        """Pool of commands that do not name one. It can still be closed if a configuration file has become invalid."""
        try:
            return self.settings.pool
        except SkywardError:
            return self._pool_name

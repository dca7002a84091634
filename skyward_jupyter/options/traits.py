"""The traits of the magics: what `c.SkyMagics.NAME = value` and `%config SkyMagics.NAME = value` set."""

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics
from traitlets import Bool, Float, Int, TraitError, Unicode, Union, observe, validate

from skyward.config import load
from skyward.errors import SkywardError
from skyward_jupyter.options.reading import PLACES, place
from skyward_jupyter.options.settings import NAMES, Settings, Sourced, settings_from

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["ConfiguredMagics"]

_DEFAULT = Settings()


class ConfiguredMagics(Magics):
    """Magics with settings. What is set here counts more than what a file says."""

    pool = Unicode(_DEFAULT.pool, help="The pool of cells that name none.").tag(config=True)
    on = Union(
        [Unicode(), Int()],
        default_value=_DEFAULT.on,
        help="Where cells run that do not say it: one, all, head, ranks, or a group of the pool.",
    ).tag(config=True)
    by_node = Bool(_DEFAULT.by_node, help="Whether cells on several nodes have a section of output for each node.").tag(
        config=True
    )
    quiet = Bool(_DEFAULT.quiet, help="Whether cells show no progress, no list of what is sent and no footer.").tag(
        config=True
    )
    retries = Int(_DEFAULT.retries, min=0, help="How often a cell that raises is run again.").tag(config=True)
    timeout = Float(_DEFAULT.timeout, allow_none=True, help="Seconds after which the work of a cell is stopped.").tag(
        config=True
    )
    footer = Bool(_DEFAULT.footer, help="Whether to say below a cell where it ran, for how long and what it cost.").tag(
        config=True
    )
    capture_limit = Int(_DEFAULT.capture_limit, help="Bytes that the variables of a cell may weigh.").tag(config=True)
    show_progress = Bool(
        _DEFAULT.show_progress, help="Whether to show the progress of pools that open and of many tasks."
    ).tag(config=True)
    progress_after = Float(_DEFAULT.progress_after, help="Seconds before a line of progress is shown.").tag(config=True)
    interrupt_grace = Float(
        _DEFAULT.interrupt_grace,
        help="Seconds that a stopped cell has to end and to hand over its variables.",
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
    def sourced(self) -> dict[str, Sourced]:
        """Each setting, and who says so.

        Raises:
            SpecError: a file is wrong.
        """
        configured = self.config.get("SkyMagics", {})  # setting a trait to what it was is no change to observe
        given = {name for name in NAMES if name in self._set_here or name in configured}
        values = {name: getattr(self, name) for name in NAMES}
        return settings_from({**values, "on": place(str(self.on))}, given, load())

    @property
    def _settings(self) -> Settings:
        settings = Settings(**{name: each.value for name, each in self.sourced.items()})
        self._pool_name = settings.pool
        return settings

    @property
    def _display_settings(self) -> Settings:
        """The settings for what is only shown: a file that is broken by now must not keep code from running."""
        try:
            return self._settings
        except SkywardError:
            return Settings(**{name: getattr(self, name) for name in NAMES})

    @property
    def default_pool(self) -> str:
        """The pool that commands mean which name none. A file that is broken by now keeps nobody from closing it."""
        try:
            return self._settings.pool
        except SkywardError:
            return self._pool_name

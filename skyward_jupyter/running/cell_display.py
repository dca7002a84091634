"""Display of a cell in the notebook, besides its output: elements, values, progress and the footer."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from skyward.frontends.views import screen
from skyward_jupyter.display.footer import footer_of
from skyward_jupyter.display.progress import Progress

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.frontends.pools import Run
    from skyward_jupyter.options.settings import CellSettings

__all__ = ["CellDisplay"]


class CellDisplay:
    """Display of the cells of one notebook."""

    def __init__(self, shell: "InteractiveShell") -> None:
        self._shell = shell

    def remember(self, value: object) -> None:
        """Bind `_` and an entry of `Out` to the value, as for any cell."""
        if value is not None:
            hook: Any = self._shell.displayhook
            hook.update_user_ns(value)

    @contextmanager
    def footer(self, runs: "Sequence[Run[Any]]", started: float, *, shown: bool) -> Iterator[None]:
        """Show the footer of a cell after the block, whether it succeeded or raised."""
        try:
            yield
        except KeyboardInterrupt:
            shown = False  # the outcome is shown instead
            raise
        finally:
            footer = footer_of(runs, time.monotonic() - started) if shown else None
            if footer is not None:
                self.publish(footer)

    def progress(
        self, text: Callable[[], str], settings: "CellSettings", quiet: bool, last: Callable[[], str] | None = None
    ) -> Progress:
        enabled = settings.show_progress and not quiet
        return Progress(self._shell, text, last, after=settings.progress_after, enabled=enabled)

    def show(self, element: object) -> None:
        """Show one element of a stream: plain text as lines, which front ends merge, rich output as displays."""
        data, metadata = self._formatted(element)
        if set(data) == {"text/plain"}:
            screen.put("stdout", f"{data['text/plain']}\n", self)
        elif data:
            self._shell.display_pub.publish(data=data, metadata=metadata)

    def publish(self, value: object) -> None:
        data, metadata = self._formatted(value)
        self._shell.display_pub.publish(data=data, metadata=metadata)

    def _formatted(self, value: object) -> tuple[dict[str, Any], dict[str, Any]]:
        formatter: Any = self._shell.display_formatter
        data, metadata = formatter.format(value)
        return data, metadata

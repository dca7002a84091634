"""`skyward config`: every setting of pools, with its value and its source."""

from skyward.cli.terminal.answers import say, write_json, write_lines, write_table
from skyward.commands.table.pool_options import POOL_LABELS

__all__ = ["config"]


def config(*, pool: str | None = None, json: bool = False) -> int:
    """Print the settings of a pool, or of those of skyward.toml, as they would be if it were opened now."""
    from skyward.config import load
    from skyward.config.files import USER_FILE
    from skyward.values.validation import closest
    from skyward.views.drawing import grid
    from skyward.views.settings import plain_value, settings_of, shown_value

    loaded = load()
    if pool is not None and pool not in loaded.pools:
        hint = f"; {closest(pool, loaded.pools)}" if loaded.pools else "."
        say(
            f"There is no pool {pool!r} in skyward.toml, so these are the settings of any pool without a table of "
            f"its own{hint}"
        )
    names = [pool] if pool is not None else [*loaded.pools]
    tables = {name: settings_of(loaded, name, POOL_LABELS) for name in names or ["default"]}
    if json:
        write_json(
            [
                {
                    "pool": name,
                    "option": POOL_LABELS.get(path, path),
                    "field": path,
                    "value": plain_value(path, value),
                    "from": source,
                }
                for name, rows in tables.items()
                for path, value, source in rows
            ]
        )
        return 0
    read = [f"read: {file.path}" for file in reversed(loaded.files)]
    write_lines(read or [f"There is no skyward.toml here or above, and no {USER_FILE}."])
    for name, rows in tables.items():
        write_lines([""])
        cells = [
            (POOL_LABELS.get(path, path), shown_value(path, value) or "none", source) for path, value, source in rows
        ]
        write_table(grid((f"pool {name!r}", "value", "from"), cells, cut=("value",)))
    return 0

"""`skyward config`: every setting of pools, with its value and its source."""

from skyward.cli.terminal.answers import write_json, write_lines, write_table
from skyward.commands.table.pool_options import POOL_LABELS

__all__ = ["config"]


def config(*, pool: str | None = None, json: bool = False) -> int:
    """Print the settings of a pool, or of those of skyward.toml, as they would be if it were opened now."""
    from skyward.config import load
    from skyward.config.files import USER_FILE
    from skyward.views.drawing import grid
    from skyward.views.settings import setting_rows

    loaded = load()
    names = [pool] if pool is not None else [*loaded.pools]
    tables = {name: setting_rows(loaded, name, POOL_LABELS) for name in names or ["default"]}
    if json:
        write_json(
            [
                {"pool": name, "option": POOL_LABELS.get(path, path), "field": path, "value": value, "from": source}
                for name, rows in tables.items()
                for path, value, source in rows
            ]
        )
        return 0
    read = [f"read: {file.path}" for file in reversed(loaded.files)]
    write_lines(read or [f"There is no skyward.toml here or above, and no {USER_FILE}."])
    for name, rows in tables.items():
        write_lines([""])
        cells = [(POOL_LABELS.get(path, path), value or "none", source) for path, value, source in rows]
        write_table(grid((f"pool {name!r}", "value", "from"), cells, cut=("value",)))
    return 0

"""Configuration files of pools and cells: `skyward.toml` of the project overrides `~/.skyward/defaults.toml`.

    [cells]                    defaults of every %%sky cell: pool, timeout, footer, ...
    [defaults]                 defaults of every pool of cells, overridden by the table of the pool
    [pools.NAME]               one pool: the fields of `sky.Compute`, with `image`, `worker` and `groups` as tables
    [storages.NAME]            an object store, which a volume refers to by NAME as its `storage`
    [providers.NAME]           settings of the provider of that `type`, or of that name without one; a pool refers to it
                               by NAME as its `provider`

The files are read whenever a pool is opened or a cell is run, so edits apply from the next cell on.
"""

from skyward.config.files import ConfigValue, File, find_files
from skyward.config.merged import Config, load

__all__ = ["Config", "ConfigValue", "File", "find_files", "load"]

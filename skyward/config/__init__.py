"""What the user's files say of pools and cells: `skyward.toml` of the project, over `~/.skyward/defaults.toml`.

    [cells]                    what holds for every %%sky cell: pool, timeout, footer, ...
    [defaults]                 what every pool of cells has, unless its own table says otherwise
    [pools.NAME]               that pool: the fields of `sky.Compute`, with `image`, `worker` and `groups` as tables
    [providers.NAME]           settings of a provider, whose `type` says of which; a pool names it as its `provider`

The files are read when something is opened or run, so an edit counts from the next cell on.
"""

from skyward.config.files import File, Found, find_files
from skyward.config.merged import Config, load

__all__ = ["Config", "File", "Found", "find_files", "load"]

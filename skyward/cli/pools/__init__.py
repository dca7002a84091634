"""Commands on pools: they read the journal, and attach to pools whose process is gone."""

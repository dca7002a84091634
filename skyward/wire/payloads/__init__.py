"""Values as bytes: the pickler, out-of-band buffers, content addresses, and the source of the user's modules.

Imports `wire.kinds`, `wire.protocol` and the handles of kept values.
"""

"""The magics `%%sky` and `%sky`, their completion, and the panel's form for a new pool.

Imports everything else of this package.
"""

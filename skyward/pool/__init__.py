"""`sky.Compute` and its blocking API: dispatch, map, logs, metrics, events, `sky.attach` and `sky.reap`.

Pickles on the calling thread, then hands over to the event loop. May import every other package of the library.
"""

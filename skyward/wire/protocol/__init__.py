"""Messages between client and node (`messages`, `mailbox`) and of worker adapters (`adapter`), and their flow control.

`decoding` reads the JSON of adapters and of the panel. Imports values.
"""

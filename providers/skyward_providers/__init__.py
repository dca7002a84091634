"""The providers that ship with Skyward, one module each."""

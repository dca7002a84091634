"""The client's side of object stores: its credentials, and the verbs of `sky.Storage` with progress and manifests."""

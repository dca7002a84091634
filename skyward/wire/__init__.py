"""Communication between client and node: typed messages, payloads, content addresses."""

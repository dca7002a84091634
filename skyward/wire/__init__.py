"""What crosses between client and node: messages typed once, payloads, content addresses."""

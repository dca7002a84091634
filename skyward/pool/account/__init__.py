"""The user's accounts at clouds: credentials, offers, costs, and images of machines."""

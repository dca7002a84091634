"""Commands and settings of OpenGRIS Scaler's policies, in its own terms."""

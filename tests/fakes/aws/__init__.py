"""AWS on this machine: moto's server, behind a shim that adds what it lacks, and faults."""

from tests.fakes.aws.server import FakeAWS, aws_server

__all__ = ["FakeAWS", "aws_server"]

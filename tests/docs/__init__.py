"""Tests of the documentation site and of the code that its pages show."""

"""Files of cells: their choice, what is sent, and what is written here."""

from skyward.files.transfer.choice import FileOptions
from skyward.files.transfer.transfer import FetchedVersions, FileTransfer
from skyward.files.transfer.writer import Shape

__all__ = ["FetchedVersions", "FileOptions", "FileTransfer", "Shape"]

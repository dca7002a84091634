"""Files of cells: selection, comparison and transfer."""

from skyward.files.disk import Content, Listing, TooManyFilesError, Versions, list_files, matching, read, write
from skyward.files.patterns import (
    NEVER_SYNCED,
    Excludes,
    Glob,
    is_inside,
    is_pattern,
    is_relative,
    parents,
    version_name,
)
from skyward.files.plan import FileVersions, decide_landing, version_names
from skyward.files.request import SMALL, FetchedFile, FilesRequest, FilesResult, FilesRoot, Packing, pieces

__all__ = [
    "NEVER_SYNCED",
    "SMALL",
    "Content",
    "Excludes",
    "FetchedFile",
    "FileVersions",
    "FilesRequest",
    "FilesResult",
    "FilesRoot",
    "Glob",
    "Listing",
    "Packing",
    "TooManyFilesError",
    "Versions",
    "decide_landing",
    "is_inside",
    "is_pattern",
    "is_relative",
    "list_files",
    "matching",
    "parents",
    "pieces",
    "read",
    "version_name",
    "version_names",
    "write",
]

"""Cells: the pickling of their variables, the request and the result, changes, and failures."""

from skyward.control.act.recovered_cells import bind_with, open_result
from skyward.control.act.tasks.missing_modules import with_fix
from skyward.wire.failures.failure import Failure, Frame, capture_failure
from skyward.wire.failures.frames import FrameState, NodeValue
from skyward.wire.kinds.arrays import ArrayView, Extent, extent_of, is_inside_frame, shared_views, view_in_bytes
from skyward.wire.objects.array_changes import is_array_overwritten
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.changes import Change, Location
from skyward.wire.objects.merging import (
    StandInComparison,
    is_applied_last,
    is_whole_different,
    number_to_compare,
    put_change,
    renew_hashes,
)
from skyward.wire.objects.mutability import is_plain, is_shared_visibly
from skyward.wire.objects.pickling import Shared, digest_of, pack_shared
from skyward.wire.objects.process_wide import generators_used_by, settings_used_by, title_of
from skyward.wire.objects.unpickling import NestedPickle, seeds_used, unpack_shared, unpack_tracked
from skyward.wire.payloads.modules import OUR_PACKAGES, is_local_file
from skyward.wire.payloads.payload import Addresses, Packed, pack
from skyward.wire.payloads.sources import ModuleSource, imported_names, imports_of, source_bundle
from skyward.worker.cells.cell import CellRequest, CellResult, Root, run_cell, stream_cell
from skyward.worker.cells.object_graph import PackedGraph
from skyward.worker.cells.returned_state import ReturnedState, Unreturned
from skyward.worker.code.local_modules import ReimportedModules
from skyward.worker.code.magics import CELL_MAGICS, IGNORED, LINE_MAGICS, repeated, script_arguments
from skyward.worker.code.program import PROVIDED, SHOW, STREAM, VALUE, Program, build
from skyward.worker.code.shell import names_in_command
from skyward.worker.display.publishing import CLEAR_MIME
from skyward.worker.tasks.missing_modules import pip_name

__all__ = [
    "CELL_MAGICS",
    "CLEAR_MIME",
    "IGNORED",
    "LINE_MAGICS",
    "OUR_PACKAGES",
    "PROVIDED",
    "SHOW",
    "STREAM",
    "VALUE",
    "Addresses",
    "ArrayView",
    "CellEnd",
    "CellRequest",
    "CellResult",
    "Change",
    "Extent",
    "Failure",
    "Frame",
    "FrameState",
    "Location",
    "ModuleSource",
    "NestedPickle",
    "NodeValue",
    "Packed",
    "PackedGraph",
    "Program",
    "ReimportedModules",
    "ReturnedState",
    "Root",
    "Shared",
    "StandInComparison",
    "Unreturned",
    "bind_with",
    "build",
    "capture_failure",
    "digest_of",
    "extent_of",
    "generators_used_by",
    "imported_names",
    "imports_of",
    "is_applied_last",
    "is_array_overwritten",
    "is_inside_frame",
    "is_local_file",
    "is_plain",
    "is_shared_visibly",
    "is_whole_different",
    "names_in_command",
    "number_to_compare",
    "open_result",
    "pack",
    "pack_shared",
    "pip_name",
    "put_change",
    "renew_hashes",
    "repeated",
    "run_cell",
    "script_arguments",
    "seeds_used",
    "settings_used_by",
    "shared_views",
    "source_bundle",
    "stream_cell",
    "title_of",
    "unpack_shared",
    "unpack_tracked",
    "view_in_bytes",
    "with_fix",
]

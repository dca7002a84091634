from dataclasses import dataclass, field, fields
from typing import Any
@dataclass(frozen=True)
class Nodes:
    min: int; max: int | None = None; desired: int | None = None
    @classmethod
    def of(cls, v):
        return v if isinstance(v, Nodes) else cls(v) if isinstance(v, int) else cls(*v)
    @property
    def ceiling(self): return self.max or self.min
    @property
    def threshold(self): return self.desired if self.desired is not None else self.min
type NodesLike = Any
@dataclass(frozen=True)
class Worker:
    concurrency: int = 1; executor: str = "auto"
    @property
    def resolved_executor(self): return "thread" if self.executor == "auto" else self.executor
@dataclass(frozen=True)
class Image:
    env: dict = field(default_factory=dict); pip: tuple = (); apt: tuple = (); python: str = "auto"
@dataclass(frozen=True)
class Options:
    worker: Worker = Worker(); bootstrap_timeout: float | None = None; shutdown_timeout: float = 120; default_compute_timeout: float = 300; retry_on_interruption: int = 3
@dataclass(frozen=True)
class Spec:
    provider: Any = None; nodes: Any = 1; image: Image = Image(); accelerator: Any = None
    vcpus: Any = None; memory_gb: Any = None; disk_gb: Any = None; architecture: Any = None; region: Any = None; volumes: tuple = ()
def resolve(specs, options, f):
    o = options or Options(**{k: f.pop(k) for k in list(f) if k in {x.name for x in fields(Options)}})
    return (specs or (Spec(**f),)), o

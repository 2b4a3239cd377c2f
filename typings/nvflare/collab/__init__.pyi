# What secagg uses of NVIDIA FLARE's Collab API (2.9).
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

class _Workspace:
    def get_site_config_dir(self) -> str: ...
    def get_run_dir(self, job_id: str) -> str: ...

class _FLContext:
    def get_job_id(self) -> str: ...

class _Context:
    def is_aborted(self) -> bool: ...

class _Client:
    name: str
    def __call__(self, *, timeout: float, secure: bool = ...) -> Any: ...

class _Collab:
    site_name: str
    workspace: _Workspace
    fl_ctx: _FLContext
    context: _Context
    clients: Iterable[_Client]
    def publish(self, function: _Function) -> _Function: ...
    def main(self, function: _Function) -> _Function: ...

collab: _Collab

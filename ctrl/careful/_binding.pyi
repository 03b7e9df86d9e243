"""The cffi module that the build generates from datapath/include/careful.

C data are Any: what gives them types is the code that wraps them.
"""

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

class _FFI:
    def def_extern(
        self, name: str = ..., error: Any = ..., onerror: Callable[..., None] = ...
    ) -> Callable[[_F], _F]: ...
    def __getattr__(self, name: str) -> Any: ...

ffi: _FFI
lib: Any

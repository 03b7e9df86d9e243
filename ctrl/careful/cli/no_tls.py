"""asyncio without TLS, which it can do without and nothing here speaks.

To be imported before anything else imports asyncio: TLS is a tenth of what all imports of a
transfer take.
"""

from __future__ import annotations

import sys
from importlib import import_module

__all__ = ["asyncio"]

if "asyncio" in sys.modules or "ssl" in sys.modules:
    asyncio = import_module("asyncio")
else:
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        asyncio = import_module("asyncio")
    finally:
        del sys.modules["ssl"]

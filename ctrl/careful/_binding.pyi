# Types of the generated binding: what it declares comes from the C headers.
from typing import Any

ffi: Any
lib: Any

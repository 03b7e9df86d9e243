"""Several hosts at once: a file that names them, and programs started on each.

Owns no protocol and no scheduler: each host runs its own `carefulctl` and prints JSON.
"""

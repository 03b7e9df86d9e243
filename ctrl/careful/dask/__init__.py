"""careful:// for dask.distributed: scheduler, workers and clients talk over careful.

Needs the extra `dask`; distributed finds the package under the name `careful` (`carefulctl help
dask`).
"""

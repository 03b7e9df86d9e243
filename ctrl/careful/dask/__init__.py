"""careful:// for dask.distributed: scheduler, workers and clients talk over careful.

hub.py is a program's share of carefuld, link.py what two programs know of each other, comm.py
a channel between two of their parts, backend.py what distributed calls. It needs the extra
`dask`, and is found by distributed under the name `careful` (`carefulctl help dask`).
"""

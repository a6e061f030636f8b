"""Measure what a model costs on this machine: time, memory, and where they go.

`workload` says what is run, `worker` measures one row in a process of its own, `process` starts and asks such a
process, `runner` takes turns between them, `report` holds the figures and compares them with older ones, and
`tables` puts them into words. The command line is `kws-edge bench`.
"""

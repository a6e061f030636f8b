"""What a model costs on this machine: time, memory, and where they go.

`workload` says what is run, `worker` runs one row in a process of its own, `runner` starts the workers and takes turns
between them, `report` holds the figures and compares them with older ones. The command line is `kws-edge bench`.
"""

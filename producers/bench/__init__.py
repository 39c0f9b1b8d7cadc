"""`fleet bench`: what the fleet costs and how fast it takes over, measured on this machine.

`rig` has the servers and processes, `counts` reads what they used. `load` is the fleet's
side of a throughput run and `plain` the other's; `pairs` sets one against the other.
`takeover` kills workers and `sigterm` stops them. How it is measured: docs/benchmarks.md.
"""

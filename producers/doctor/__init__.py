"""`fleet doctor`: looks at what a fleet stands on, and says of each problem how it is mended.

One module per group of checks; each gives findings and raises nothing for what it finds
(:mod:`producers.doctor.finding`). :mod:`producers.doctor.checkup` runs them all. Nothing
here writes anything.
"""

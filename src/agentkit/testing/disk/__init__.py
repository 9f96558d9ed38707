"""What a disk may do to a SQLite store: lose its power, its space, an operation, a bit.

`python -m agentkit.testing.disk` runs the campaigns.
"""

"""How long a test waits for a process before it gives up, in seconds.

Only that something that hangs for ever is found: it is far above ten times what takes longest on a
quiet machine, since a busy one is no fault.
"""

PATIENCE = 3600

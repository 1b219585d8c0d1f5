"""What a thread, a block and a large card can take: the constants that several schedules share."""

from __future__ import annotations

SERIAL = 32  # elements that one thread reduces by itself, inside a pointwise kernel
PROCESSORS = 132  # multiprocessors of a large card
RESIDENT = 64 * 1024  # bytes that the threads of one block hold in registers between two passes over a row
CLUSTER = 8  # blocks of a cluster, at most: what every card that has clusters can place
WAVES = 2  # blocks a processor that walkers and split rows aim at

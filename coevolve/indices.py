"""First index of each kind of exploration of an iteration that has no signal; those of D_0's seeding begin at 0.

An index is part of an exploration's id, and orders candidates: kinds must not share one.
"""

RANDOM, HARDEN, ADVERSARIAL, FOCUS, OUTSIDE = (kind * 10**6 for kind in range(1, 6))

"""What comes next, when, and why, and what happened: answers for the person on call, from records alone.

The law of this package: pure, and honest.  A time is a range with the basis that it rests on, or unknown; nothing is
estimated from what was not measured in this topology.
"""

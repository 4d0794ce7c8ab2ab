"""The loops of the planners that are too hot for Python, written so that numba can compile them.

Each module is plain Python over numpy arrays and calls nothing outside itself but numpy, so that it runs
interpreted as well and `reprise.algorithms.compiled` can compile it as a whole. A kernel looks at no clock: it returns
after a bounded amount of work, and its caller, which holds the deadline, calls again. All numbers are int64,
or float64 that hold integers below 2**53, so compiled and interpreted runs agree to the last bit.
"""

"""Files below a location: local folders and every store that fsspec reaches, with the same promises.

The law of this package: it is the only one that reads and writes below a location.
"""

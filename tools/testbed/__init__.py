"""What tests and benchmarks both stand on: an API server and its REST client, the engine in one process, an exchange on a
real Spark, and waiting for what other processes do.  It knows neither tests nor benchmarks.
"""

"""The transport of a continuous exchange: a Spark job that carries frames between partition hosts for as long as it runs.

It knows slots, executors and bytes; what frames mean is the hosts' (`reprise.spark_jobs.node`).  Nothing in here may be
relied on where the probe has not passed: Spark 4.3 has the shuffle that it uses for its own real-time mode, and promises
it to nobody (docs/decisions/0028-continuous-exchange.md).
"""

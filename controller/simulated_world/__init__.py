"""A whole system in virtual time: the real coordinator, driver, engine, hosts and agents in a modelled world, from one
seed.

The world models what the project does not make itself: ZooKeeper, Spark's jobs and executors, stores, and the
operating system that runs, stops and ends processes.  Everything else is the code that people run.  The law of this
package: whatever happens follows from the schedule and its seed; nothing here asks a real clock, and nothing that
runs elsewhere imports it but the command line and analysis (docs/decisions/0039-the-simulated-world.md,
docs/simulated-world.md).
"""

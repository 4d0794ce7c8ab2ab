"""The driver process: the Spark application of one topology, told what to do through ZooKeeper."""

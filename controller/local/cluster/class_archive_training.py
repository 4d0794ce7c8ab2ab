"""Training run for the class archive: one node, one small job of the kind that the data plane runs.

A process of its own: a SparkContext takes over the environment and the one gateway of the Python process it
is in.
"""

import os
import sys
from pathlib import Path

from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.cluster.config import ClusterConfig


def main(target: Path) -> None:
    """Leave a class list of every JVM of the cluster, `*.classes`, in the folder."""
    lists = f"-XX:DumpLoadedClassList={target}/%p.classes"
    # the archive that is being made cannot be used, and a slow first start is no failure
    config = ClusterConfig(
        nodes=1, class_archive=False, java_options=(lists,), start_timeout_s=180, work_dir=target
    )
    with EmbeddedCluster(config) as cluster:
        os.environ.update(cluster.spark_env())
        from pyspark import SparkConf, SparkContext

        from reprise.controller.agent.announcing import announce

        settings = {
            "spark.executor.memory": f"{config.executor_memory_mb}m",
            "spark.executor.extraJavaOptions": cluster.executor_java_options(),
            "spark.driver.extraJavaOptions": cluster.driver_java_options(),
            "spark.ui.enabled": "false",
        }
        conf = (
            SparkConf()
            .setMaster(cluster.master_url)
            .setAppName("class archive")
            .setAll(list(settings.items()))
        )
        context = SparkContext(conf=conf)
        withdraw = announce(context)
        pairs = context.parallelize([(i, bytes(100_000)) for i in range(8)], 4).partitionBy(4).persist()
        moved = pairs.map(lambda pair: (pair[0] + 1, pair[1])).partitionBy(4)
        if context.union([pairs, moved]).count() != 16:
            raise SystemExit("the training job went wrong")
        withdraw()
        context.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

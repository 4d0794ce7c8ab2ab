"""`python -m reprise.controller.local.cluster --nodes 4`: keep a cluster up for work by hand until Ctrl-C."""

import argparse
import shlex
import threading

from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.cluster.config import ClusterConfig


def main() -> None:
    """Start, print where everything is, wait."""
    parser = argparse.ArgumentParser(prog="python -m reprise.controller.local.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--serve", action="append", default=[], metavar="/reprise/NAMESPACE/TOPOLOGY")
    options = parser.parse_args()
    try:
        cluster = EmbeddedCluster(ClusterConfig(nodes=options.nodes))
        cluster.start(lambda line: print(line, flush=True))
        with cluster:
            for root in options.serve:
                cluster.serve(root)
            print(f"Spark master  {cluster.master_url}   {cluster.master_ui_url}")
            print(f"ZooKeeper     {cluster.zk_hosts}")
            print(f"logs          {cluster.log_dir}")
            for name, value in {**cluster.spark_env(), **cluster.zk_environment()}.items():
                print(f"export {name}={shlex.quote(value)}")
            print(f"# spark.executor.extraJavaOptions = {cluster.executor_java_options()}")
            print("Ctrl-C ends it", flush=True)
            threading.Event().wait()
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()

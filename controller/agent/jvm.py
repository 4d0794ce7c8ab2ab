"""Command lines of the JVMs: one class path, one set of flags, one log layout.

Every JVM gets the very class path that Spark itself builds for executors (`conf` folder, then `jars/*`),
because a class-data archive is valid for one class path only. The `conf` folder does not exist: a setting
that a user has lying about in SPARK_CONF_DIR must not leak into the cluster, and an archive may not contain
folders with content.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from reprise.controller.errors import StartError

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
"""Serial collector: no pool of collector threads a JVM on a shared machine. C1 only: the JVMs move bytes for
Python workers, and C2 would compile on the cores that the workers need. No perf data: no file a JVM in the
temporary folder."""

MASTER = "org.apache.spark.deploy.master.Master"
ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{{{time}}} %p %c{{1}} %m%n%ex{{8}}
"""


def spark_home() -> Path:
    """The folder of the installed pyspark: its wheel is a complete Spark distribution."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise StartError("pyspark is not installed")
    return Path(spec.origin).parent


def conf_dir(home: Path) -> Path:
    """A folder that does not exist, the same for every cluster: newer JVMs compare the name all the same."""
    return home / "no-conf"


def log_config(time: str) -> str:
    """Log4j's properties for warnings on standard error; `time`: a date pattern of Log4j."""
    return _LOG4J.format(time=time)


def class_path(home: Path) -> str:
    """The class path as Spark's launcher builds it for drivers and executors: the logging API's jar before all others."""
    first = [str(jar) for jar in sorted((home / "jars").glob("slf4j-api-*.jar"))]
    return ":".join([str(conf_dir(home)), *first, f"{home}/jars/*"])


@dataclass(frozen=True, slots=True)
class Jvm:
    """How to start a JVM of this cluster."""

    java_home: Path
    log_config: Path
    """In the cluster's scratch folder, which has the temporary files of all JVMs as well: one that is killed leaves some."""
    options: tuple[str, ...] = ()
    archive: Path | None = None
    home: Path = field(default_factory=spark_home)

    def flags(self) -> tuple[str, ...]:
        """Options common to all JVMs, the executors included."""
        archive = (f"-XX:SharedArchiveFile={self.archive}",) if self.archive else ()
        places = f"-Dlog4j2.configurationFile={self.log_config}", f"-Djava.io.tmpdir={self.log_config.parent}"
        return (*FAST_START, *archive, *places, *self.options)

    def command(self, main: str, *arguments: str, heap_mb: int, before: str = "") -> list[str]:
        """Command line for one of the daemons; `before`: class path entries that come before Spark's."""
        path = ":".join(filter(None, [before, class_path(self.home)]))
        java = str(self.java_home / "bin" / "java")
        return [java, "-cp", path, f"-Xmx{heap_mb}m", *self.flags(), main, *arguments]

    def environment(self, host: str) -> dict[str, str]:
        """Environment of a daemon, and so of the executors and Python workers below it."""
        return {
            "JAVA_HOME": str(self.java_home),
            "SPARK_HOME": str(self.home),
            "SPARK_CONF_DIR": str(conf_dir(self.home)),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_HOSTNAME": host,
        }

    def write_log_config(self) -> None:
        """Warnings to standard error, which the cluster sends to a file."""
        self.log_config.write_text(log_config("HH:mm:ss.SSS"), encoding="utf-8")

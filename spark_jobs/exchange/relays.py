"""The relays of an exchange, in Java, compiled at the driver's start and handed to all executors.

`Relays.java` beside this module is the source, janino out of Spark's own jars the compiler: nobody needs a JDK, and what is
compiled always fits the Spark that is installed, or does not compile, which the probe reports.
"""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark import SparkContext

CLASS = "reprise.Relays"
_lock = threading.Lock()
_compiled: dict[str, Relays] = {}
"""By application: a second jar of the same name would be refused."""


class Relays:
    """The compiled relays of one Spark application."""

    def __init__(self, context: SparkContext, java: Any) -> None:
        self._context, self._java = context, java

    @classmethod
    def compiled(cls, context: SparkContext) -> Relays:
        """Those of this application; compiles them, and has executors fetch them, when it is asked first (about a second).
        Raises what py4j raises where this Spark is another one than they were written for."""
        with _lock:
            application = str(context.applicationId)
            if application not in _compiled:
                _compiled[application] = cls(context, _instance(context))
            return _compiled[application]

    def exchange(self, hosts: Sequence[str], executors: Sequence[str], number: int) -> Any:
        """The Java RDD whose `count` is the exchange; slots are in the order of `hosts`, `executors` are their ids."""
        return self._java.exchange(self._spark(), number, list(hosts), list(executors))

    def trial(self, hosts: Sequence[str], executors: Sequence[str]) -> Any:
        """The Java RDD of a tiny exchange without partition hosts: how many frames came to each slot, one from each."""
        return self._java.trial(self._spark(), list(hosts), list(executors))

    def desk(self, number: int, slots: int) -> Any:
        """The Java end of the orders and reports of an exchange, which is to be there before the exchange begins."""
        return self._java.desk(number, slots)

    def _spark(self) -> Any:
        java: Any = self._context._jsc
        return java.sc()


def _instance(context: SparkContext) -> Any:
    """An instance out of a jar that executors fetch from the driver; the JVM removes it when it ends."""
    jvm, gateway = context._jvm, context._gateway
    utils = jvm.org.apache.spark.util.Utils
    folder = utils.createTempDir(getattr(utils, "createTempDir$default$1")(), "reprise")
    path = Path(str(folder.getPath())) / "reprise-relays.jar"
    compile_jar(jvm, files(__package__).joinpath("Relays.java").read_text(encoding="utf-8"), path)
    java: Any = context._jsc
    java.sc().addJar(str(path))
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(path)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    found = jvm.java.lang.Class.forName(CLASS, True, loader)
    nothing = gateway.new_array(jvm.java.lang.Class, 0), gateway.new_array(jvm.java.lang.Object, 0)
    return found.getConstructor(nothing[0]).newInstance(nothing[1])


def compile_jar(jvm: Any, source: str, path: Path) -> None:
    """Compile Java, in a JVM that has janino on its class path, into a jar at `path`.  Py4JJavaError names what is wrong."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.cook(source)
    made = compiler.getBytecodes()
    with zipfile.ZipFile(path, "w") as jar:
        for name in made.keySet():
            jar.writestr(f"{name.replace('.', '/')}.class", bytes(made.get(name)))

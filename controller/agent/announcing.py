"""Has agents of a local cluster start executors for a Spark application of this process."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprise.controller.agent import applications, processes
from reprise.controller.agent.applications import Application


def announce(context: Any, name: str = "") -> Callable[[], None]:
    """Ask each node of the cluster that this process belongs to for an executor of a SparkContext's application.

    `name`: a later application with that name takes the place of this one; the default is the application's id.  Returns
    what withdraws the request, to be called before the application is stopped.  Outside of a local cluster nothing happens.
    """
    if not (folder := os.environ.get(applications.FOLDER)):
        return lambda: None
    application = _described(context)
    name = name or application.id
    applications.announce(Path(folder), name, application)
    return lambda: applications.withdraw(Path(folder), name, application.id)


def _described(context: Any) -> Application:
    spark, conf = context._jsc.sc(), context._jvm.org.apache.spark.SparkConf
    settings = {str(pair._1()): str(pair._2()) for pair in spark.conf().getAll()}
    # what an executor needs to reach its driver, which gives it the rest
    early = [f"-D{name}={value}" for name, value in settings.items() if conf.isExecutorStartupConf(name)]
    options = f"{settings.get('spark.executor.defaultJavaOptions', '')} {settings['spark.executor.extraJavaOptions']}"
    variables, environment = spark.executorEnvs().iterator(), {}
    while variables.hasNext():
        pair = variables.next()
        environment[str(pair._1())] = str(pair._2())
    if libraries := settings.get("spark.executor.extraLibraryPath"):
        environment["LD_LIBRARY_PATH"] = ":".join(
            filter(None, [libraries, os.environ.get("LD_LIBRARY_PATH")])
        )
    driver = processes.inspect(os.getpid())
    assert driver is not None
    return Application(
        id=str(context.applicationId),
        scheduler=f"spark://CoarseGrainedScheduler@{settings['spark.driver.host']}:{settings['spark.driver.port']}",
        pid=driver.pid,
        started=driver.started,
        memory_mb=int(spark.executorMemory()),
        cores=int(settings.get("spark.executor.cores", "1")),
        options=(*early, *shlex.split(options)),
        class_path=settings.get("spark.executor.extraClassPath", ""),
        environment=environment,
    )

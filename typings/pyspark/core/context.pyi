from collections.abc import Iterable
from typing import Any, TypeVar

from pyspark.conf import SparkConf
from pyspark.core.rdd import RDD
from pyspark.serializers import Serializer

_T = TypeVar("_T")

class SparkContext:
    """`_jvm`, `_jsc` and `_gateway` are py4j's views of Java objects, which have whatever the Java class has."""

    _jvm: Any
    _jsc: Any
    _gateway: Any
    @property
    def applicationId(self) -> str: ...
    def __init__(
        self,
        master: str | None = ...,
        appName: str | None = ...,
        sparkHome: str | None = ...,
        pyFiles: list[str] | None = ...,
        environment: dict[str, Any] | None = ...,
        batchSize: int = ...,
        serializer: Serializer = ...,
        conf: SparkConf | None = ...,
        gateway: Any = ...,
        jsc: Any = ...,
        profiler_cls: type[Any] = ...,
        udf_profiler_cls: type[Any] = ...,
        memory_profiler_cls: type[Any] = ...,
    ) -> None: ...
    def parallelize(self, c: Iterable[_T], numSlices: int | None = ...) -> RDD[_T]: ...
    def union(self, rdds: list[RDD[_T]]) -> RDD[_T]: ...
    def stop(self) -> None: ...
    def getConf(self) -> SparkConf: ...
    def setLogLevel(self, logLevel: str) -> None: ...
    def setJobGroup(self, groupId: str, description: str, interruptOnCancel: bool = ...) -> None: ...
    def cancelJobGroup(self, groupId: str) -> None: ...
    def setLocalProperty(self, key: str, value: str) -> None: ...

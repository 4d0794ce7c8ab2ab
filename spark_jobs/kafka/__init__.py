"""Kafka in and out: a replayable source and an exactly-once sink on confluent-kafka.  Reference: docs/kafka.md."""

from reprise.spark_jobs.kafka.sink import KafkaSink
from reprise.spark_jobs.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]

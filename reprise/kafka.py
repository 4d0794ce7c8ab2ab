"""Kafka in and out, as resources name it: `class: reprise.kafka:KafkaSource`; docs/kafka.md.

These names are promised to stay (docs/stability.md).
"""

from reprise.spark_jobs.kafka import KafkaSink, KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]

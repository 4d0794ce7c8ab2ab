from pyspark.conf import SparkConf as SparkConf
from pyspark.core.context import SparkContext as SparkContext

__version__: str

"""The pods of a topology: what is seen of them, whether each is alive, and what is made, ended and removed.

Law: it asks the API server and the records, and decides nothing about partitions; what people see is `status`.
"""

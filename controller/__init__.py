"""Everything around the data plane: who decides, who runs it on a machine or on Kubernetes, and who shows it to people.

The law of this package: its layers are listed in pyproject.toml, and each room knows those below it alone; what is shown or
analysed changes nothing.  Nothing of `algorithms`, `scheduler` and `spark_jobs` imports it.
"""

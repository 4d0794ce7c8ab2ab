"""The one import root: `reprise.controller`, `reprise.scheduler`, `reprise.spark_jobs`, `reprise.algorithms`.

What is promised to stay are the modules of this folder: `reprise.contract`, `reprise.operators`, `reprise.sources`,
`reprise.kafka` and `reprise.testing`.

The four packages are folders at the top of the repository; here are links to them, so that every tool that reads folders
(Python, setuptools, mypy, import-linter) sees them below one name.  docs/decisions/0016-one-import-root.md says why.
"""

"""The client of the API server: requests within a budget, watches, the Lease, Events, and what a pod says.

The law of this package: it knows the project's resources and nothing of recovery; operator, command line and image use it.
"""

"""What people see on Kubernetes: the status with its conditions, Incidents, RecoveryPlans, Events.

Law: it writes views of what is known elsewhere.  The one thing that is read back is the approval of a plan.
"""

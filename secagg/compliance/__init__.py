"""The compliance report: what a data protection officer needs to decide about runs, with evidence.

It never states that a run complies. Every statement has one of three statuses, and every statement
with evidence says where it is: `secagg verify REPORT` builds all statements again from it.
"""

"""The policy file that a new home gets: a draft that refuses every job until its officer chooses.

It contains no number, column or level from the records, because a draft must not reveal them. It
sets neither `profile` nor `min_sites` and `min_records`, and a policy without them refuses every
job (`secagg.privacy.policy.site_policy`). The lines that an officer can choose are comments.
"""

from __future__ import annotations

DRAFT = """\
# The rules of this site. The site's officer owns this file. No job can weaken it.
#
# This draft chooses nothing, so this site refuses every job. To take part in jobs, choose one of
# the profiles: delete the "# " before its line, and leave the other lines as they are.

# DataSHIELD's defaults. A number is released only if at least 3 records stand behind it.
# profile = 3

# The minimum of many registries and of OMOP: at least 5 records, and 5 for each level of a column.
# profile = 5

# OpenSAFELY's rule, under which counts up to 7 are not shown: at least 8 records.
# profile = 7

# The defaults of SACRO's output checks: at least 10 records, 10 more records than parameters, and
# no total that is mostly that of one or two records. If you are not sure, choose this one.
# profile = 10

# As profile 10, with the rule of CMS, under which counts of 1 to 10 are not shown.
# profile = 11

# All profiles require three sites. You may add rules that are stricter, for example:

# Only these methods, and only protocols that hide this site's numbers from the coordinator:
# methods = ["moments", "logistic"]
# protocols = ["masked"]

# What all jobs with noise may cost together, if it should be less than the profile allows:
# [budget]
# period_epsilon = 3.0
# period_delta = 1e-6

# `secagg settings policy` explains all keys.
"""

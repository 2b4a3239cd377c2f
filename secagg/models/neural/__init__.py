"""Neural networks over secure sums: any torch module, and federated neural graphical models.

torch is the extra `neural`. Only the modules that `secagg.models.neural.torch_import` lists import
it, and only when a job needs it. The coordinator's steps, the sites' graphs and the plan of a
neural graphical model do not.
"""

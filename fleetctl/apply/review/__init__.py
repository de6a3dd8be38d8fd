"""Reports the changes of a pull request: two revisions of a repository, loaded, proposed, priced
and compared, without a cluster and without an account.
"""

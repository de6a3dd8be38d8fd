"""What a pull request would change: two revisions of a repository, loaded, proposed, priced and
compared, without a cluster and without an account.
"""
